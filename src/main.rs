use clap::Parser as _;
fn main() {
    println!("{:?}", agent::cli::Cli::parse());
}
