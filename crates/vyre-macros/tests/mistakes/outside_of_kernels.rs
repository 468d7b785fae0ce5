fn main() {
    vyre::print!("{}", 1);
}
