// Which rank gets which of 32 samples. `orders` has torch's order of the samples for each epoch; this
// file deals them out as torch.utils.data.DistributedSampler does.
play.figures["set-epoch"] = ({ orders }) => {
  // The samples of each rank: pad the order from its beginning, then deal it like cards.
  function deal(order, world) {
    const each = Math.ceil(order.length / world);
    const padded = [...order, ...order.slice(0, each * world - order.length)];
    return play.numbers(0, world - 1).map((rank) => padded.filter((_, i) => i % world === rank));
  }

  const world = play.slider("processes", play.numbers(1, 8), 2, String, draw);
  const epochs = play.slider("epochs", play.numbers(1, 8), 5, String, draw);
  const use = play.make("input", { type: "checkbox", checked: true, id: "play-use" });
  use.addEventListener("change", draw);
  const label = play.make("label", { htmlFor: use.id }, "call set_epoch");
  const drawing = play.make("div", { className: "play-set-epoch" });
  const status = play.make("p");
  draw();

  function draw() {
    const hands = play.numbers(0, epochs.value - 1)
      .map((epoch) => deal(orders[use.checked ? epoch : 0], world.value));
    drawing.replaceChildren(...hands.flatMap(row));
    say(hands);
  }

  function row(hand, epoch) {
    const ranksOf = (sample) => hand.flatMap((samples, rank) => samples.includes(sample) ? [rank] : []);
    const squares = play.numbers(0, 31).map((sample) => {
      const ranks = ranksOf(sample);
      const square = play.make("span", { title: `sample ${sample}` }, ranks.join(" "));
      square.style.setProperty("--first", `var(--rank-${ranks[0]})`);
      square.style.setProperty("--last", `var(--rank-${ranks.at(-1)})`);
      if (ranks.length > 1) square.className = "twice";
      return square;
    });
    const words = hand.map((samples, rank) => `rank ${rank}: ${samples.join(", ")}`);
    const squaresBox = play.make("div", { role: "img", ariaLabel: `samples of ${words.join("; ")}` }, ...squares);
    return [play.make("b", {}, `epoch ${epoch + 1}`), squaresBox];
  }

  function say(hands) {
    const [first] = hands, n = world.value, repeated = n * first[0].length - 32;
    const seen = new Set(hands.flatMap((hand) => hand[0])).size;
    let text = use.checked ? "Every epoch deals the samples anew. " : "Every epoch is the same. ";
    const these = epochs.value > 1 ? `these ${epochs.value} epochs` : "this epoch";
    text += `Rank 0 has ${first[0].length} samples per epoch, and in ${these} ${seen} of the 32.`;
    if (repeated) {
      text += ` 32 is not a multiple of ${n}, so ${repeated} sample${repeated > 1 ? "s are" : " is"} dealt twice.`;
    }
    status.textContent = text;
  }

  return { controls: [world.box, epochs.box, play.make("div", {}, use, label)], drawing, status };
};
