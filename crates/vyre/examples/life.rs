//! Conway's Game of Life in three forms: a Rust function, a file, and a program built in Rust.

use vyre::prelude::*;

#[vyre::kernel(over = [width, height], workgroup = [16, 4])]
fn life(width: u32, height: u32, cells: &[u8], #[output(len = width * height)] next: &mut [u8]) {
    let (x, y) = (vyre::index() as u32, vyre::index_y() as u32);
    let mut around = 0;
    for dy in 0..3 {
        for dx in 0..3 {
            // The grid wraps around.
            let (column, row) = ((x + dx + width - 1) % width, (y + dy + height - 1) % height);
            around += cells[(row * width + column) as usize] as u32;
        }
    }
    let at = (y * width + x) as usize;
    // The sum includes the cell itself.
    next[at] = if around == 3 || (around == 4 && cells[at] == 1) { 1 } else { 0 };
}

vyre::include_kernel!("../../../examples/game_of_life.vyre" as life_of_file);

fn built() -> Program {
    let number = Expr::u32;
    let mut life = ProgramBuilder::new("life.built").workgroup([16, 4, 1]);
    let (width, height) = (life.uniform("width", DataType::U32), life.uniform("height", DataType::U32));
    let cells = life.read("cells", DataType::U8);
    let next = life.output_of("next", DataType::U8, width.value() * height.value());
    life.over_axes([width.value(), height.value(), number(1)]);
    life.region("life", |body| {
        let around = body.bind("around", number(0));
        body.count("dy", number(0), number(3), |body, dy| {
            body.count("dx", number(0), number(3), |body, dx| {
                let column = (Expr::invocation_id(0) + dx + width.value() - number(1)) % width.value();
                let row = (Expr::invocation_id(1) + dy + height.value() - number(1)) % height.value();
                body.assign("around", around.clone() + cells.at(row * width.value() + column));
            });
        });
        let at = body.bind("at", Expr::invocation_id(1) * width.value() + Expr::invocation_id(0));
        let stays = around.clone().equals(number(4)) & cells.at(&at).equals(number(1));
        body.store(&next, at, Expr::select(around.equals(number(3)) | stays, number(1), number(0)));
    });
    life.finish()
}

fn main() -> Result<(), BackendError> {
    let runtime = Runtime::new()?;
    let (width, height) = (60u32, 20u32);
    let mut cells: Vec<u8> =
        (0..width * height).map(|i| u8::from(i.wrapping_mul(2_654_435_761) >> 30 == 0)).collect();
    let loaded = runtime.load(built())?;
    for _ in 0..50 {
        let mut next = vec![0u8; cells.len()];
        let (mut of_file, mut of_built, mut on_host) = (next.clone(), next.clone(), next.clone());
        life(width, height, &cells, &mut next).run(&runtime)?;
        life_of_file(width, height, &cells, &mut of_file).run(&runtime)?;
        let call = loaded.call().bind("width", width).bind("height", height);
        call.bind("cells", &cells).bind("next", &mut of_built).run()?;
        life::on_host(width, height, &cells, &mut on_host);
        assert!(next == of_file && next == of_built && next == on_host);
        cells = next;
    }
    for row in cells.chunks(width as usize) {
        println!("{}", row.iter().map(|&cell| if cell == 1 { '#' } else { '.' }).collect::<String>());
    }
    Ok(())
}

#[test]
fn it_runs() -> Result<(), BackendError> {
    main()
}
