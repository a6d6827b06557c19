//! A SOCKS proxy that leads to one server whatever it is asked for: version 5 (RFC 1928), where it may want a name and a password
//! (RFC 1929), and version 4 with names (4a) and without.

use std::io::{Error, Read, Result, Write, copy};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::spawn;

/// A name and a password.
pub type Credentials = (&'static str, &'static str);

/// The longest text that a client of version 4 sends, in bytes.
const MAX_TEXT: usize = 255;

/// Its address, and the names and addresses that it is asked for.
pub fn start(to: SocketAddr, credentials: Option<Credentials>) -> (SocketAddr, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let (asked, names) = channel();
    spawn(move || {
        for client in listener.incoming().flatten() {
            let asked = asked.clone();
            spawn(move || serve(client, to, credentials, &asked));
        }
    });
    (address, names)
}

fn serve(
    mut client: TcpStream,
    to: SocketAddr,
    credentials: Option<Credentials>,
    asked: &Sender<String>,
) -> Result<()> {
    let name = match byte(&mut client)? {
        4 => version_4(&mut client)?,
        _ => version_5(&mut client, credentials)?,
    };
    let _ = asked.send(name);
    let mut server = TcpStream::connect(to)?;
    let (mut from_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
    spawn(move || copy(&mut from_client, &mut to_server));
    copy(&mut server, &mut client).map(drop)
}

/// The name that is asked for, once the client knows that it is reached.
fn version_5(client: &mut TcpStream, credentials: Option<Credentials>) -> Result<String> {
    let methods = byte(client)?;
    client.read_exact(&mut vec![0; methods.into()])?;
    let method = if credentials.is_some() { 2 } else { 0 };
    client.write_all(&[5, method])?;
    if let Some((name, password)) = credentials {
        byte(client)?;
        let is_right = short_text(client)? == name && short_text(client)? == password;
        client.write_all(&[1, u8::from(!is_right)])?;
        if !is_right {
            return Err(Error::other("the wrong name or password"));
        }
    }
    let mut request = [0; 4];
    client.read_exact(&mut request)?;
    let name = match request[3] {
        1 => address(client)?.to_string(),
        _ => short_text(client)?,
    };
    client.read_exact(&mut [0; 2])?;
    client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0])?;
    Ok(name)
}

/// The same: the address, or the name behind an address that does not exist.
fn version_4(client: &mut TcpStream) -> Result<String> {
    client.read_exact(&mut [0; 3])?;
    let address = address(client)?;
    ended_text(client)?;
    let name = match address.octets() {
        [0, 0, 0, last] if last != 0 => ended_text(client)?,
        _ => address.to_string(),
    };
    client.write_all(&[0, 0x5a, 0, 0, 0, 0, 0, 0])?;
    Ok(name)
}

fn byte(client: &mut TcpStream) -> Result<u8> {
    let mut byte = [0];
    client.read_exact(&mut byte)?;
    Ok(byte[0])
}

fn address(client: &mut TcpStream) -> Result<Ipv4Addr> {
    let mut address = [0; 4];
    client.read_exact(&mut address)?;
    Ok(address.into())
}

/// A text behind a byte with its length.
fn short_text(client: &mut TcpStream) -> Result<String> {
    let mut text = vec![0; byte(client)?.into()];
    client.read_exact(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// A text in front of a byte that is zero.
fn ended_text(client: &mut TcpStream) -> Result<String> {
    let mut text = Vec::new();
    loop {
        match byte(client)? {
            0 => return Ok(String::from_utf8_lossy(&text).into_owned()),
            _ if text.len() == MAX_TEXT => return Err(Error::other("a text without an end")),
            other => text.push(other),
        }
    }
}
