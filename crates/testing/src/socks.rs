//! A SOCKS 5 proxy that leads to one server whatever it is asked for (RFC 1928), and may want a name and a password (RFC 1929).

use std::io::{Read, Result, Write, copy};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::spawn;

/// A name and a password.
pub type Credentials = (&'static str, &'static str);

/// Its address, and the names that it is asked for.
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
    let mut hello = [0; 2];
    client.read_exact(&mut hello)?;
    client.read_exact(&mut vec![0; hello[1].into()])?;
    let method = if credentials.is_some() { 2 } else { 0 };
    client.write_all(&[5, method])?;
    if let Some((name, password)) = credentials {
        let mut version = [0];
        client.read_exact(&mut version)?;
        let is_right = short_text(&mut client)? == name && short_text(&mut client)? == password;
        client.write_all(&[1, u8::from(!is_right)])?;
        if !is_right {
            return Ok(());
        }
    }
    let mut request = [0; 4];
    client.read_exact(&mut request)?;
    assert_eq!(request[3], 3, "a name follows");
    let name = short_text(&mut client)?;
    client.read_exact(&mut [0; 2])?;
    let _ = asked.send(name);
    client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0])?;
    let mut server = TcpStream::connect(to)?;
    let (mut from_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
    spawn(move || copy(&mut from_client, &mut to_server));
    copy(&mut server, &mut client).map(drop)
}

/// A text behind a byte with its length.
fn short_text(client: &mut TcpStream) -> Result<String> {
    let mut length = [0];
    client.read_exact(&mut length)?;
    let mut text = vec![0; length[0].into()];
    client.read_exact(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}
