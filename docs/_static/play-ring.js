// The ring all-reduce, round by round, as docs/theory/ring_all_reduce.py does it: rank r holds 2 to
// the power of r in every chunk at first, so a sum tells whose numbers are in it.
play.figures.ring = () => {
  let round = 0; // how many are over
  const go = (to) => {
    round = Math.max(0, Math.min(to, rounds(world.value)));
    draw();
  };
  const world = play.slider("processes", play.numbers(2, 8), 4, String, () => go(0));
  const drawing = play.make("table", { className: "play-ring" });
  const status = play.make("p");
  const buttons = [
    play.button("step", () => go(round + 1)),
    play.button("back", () => go(round - 1)),
    play.button("reset", () => go(0)),
  ];

  const rounds = (n) => 2 * (n - 1);
  const isAdding = (n, round) => round < n - 1;
  // The chunk that a rank sends to the next rank in a round, counted from 0.
  const chunkSent = (n, rank, round) => (rank - round + 2 * n) % n;

  // What every rank holds in every chunk after some rounds.
  function held(n, over) {
    const sums = play.numbers(0, n - 1).map((rank) => Array(n).fill(2 ** rank));
    for (let round = 0; round < over; round++) {
      const messages = sums.map((row, rank) => row[chunkSent(n, rank, round)]);
      messages.forEach((sum, rank) => {
        const receiver = sums[(rank + 1) % n], chunk = chunkSent(n, rank, round);
        receiver[chunk] = isAdding(n, round) ? receiver[chunk] + sum : sum;
      });
    }
    return sums;
  }

  function draw() {
    const n = world.value, sums = held(n, round);
    const head = sums.map((_, chunk) => play.make("th", { scope: "col" }, `chunk ${chunk}`));
    const rows = sums.map((row, rank) => {
      const cells = row.map((sum, chunk) => cell(n, rank, chunk, sum));
      return play.make("tr", {}, play.make("th", { scope: "row" }, `rank ${rank}`), ...cells);
    });
    drawing.replaceChildren(play.make("tr", {}, play.make("td", {}), ...head), ...rows);
    status.textContent = `${whatHappened(n, sums)} ${bytesSent(n)}`;
  }

  function cell(n, rank, chunk, sum) {
    const cell = play.make("td", {}, String(sum));
    const ranksInIt = sum.toString(2).replaceAll("0", "").length;
    cell.style.setProperty("--share", `${Math.round(60 * ranksInIt / n)}%`);
    if (round && chunk === chunkSent(n, rank, round - 1)) cell.append(" ↓");
    if (round && chunk === chunkSent(n, rank - 1, round - 1)) cell.className = "received";
    return cell;
  }

  function whatHappened(n, sums) {
    if (round === 0) {
      return "At first rank 0 holds 1 in every chunk, and each other rank twice what the rank before holds.";
    }
    const chunks = sums.map((_, rank) => chunkSent(n, rank, round - 1));
    const list = chunks.map((chunk, rank) => `rank ${rank} ${rank ? "" : "sends "}chunk ${chunk}`);
    const what = isAdding(n, round - 1) ? "add" : "copy";
    const held = `Rank 1 now holds ${sums[1][chunks[0]]} in chunk ${chunks[0]}.`;
    const end = round === rounds(n) ? ` Every rank holds ${2 ** n - 1} everywhere.` : "";
    return `Round ${round} of ${rounds(n)}, ${what}: ${list.join(", ")}, each down to the next rank (↓), ` +
      `the last to rank 0. What a rank received has a frame. ${held}${end}`;
  }

  function bytesSent(n) {
    const multiple = (chunks) => `${(chunks / n).toFixed(2)} times`;
    return `Each rank has sent ${multiple(round)} the bytes of the tensor; ` +
      `in all ${rounds(n)} rounds it sends 2 (${n} − 1) / ${n} = ${multiple(rounds(n))}.`;
  }

  draw();
  return { controls: [world.box, ...buttons], drawing, status };
};
