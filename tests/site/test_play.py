"""The figures to play with, used by keyboard, say what the Python beside them says."""

import re

import pytest
from torch.utils.data import DistributedSampler

from docs.theory import step_time
from parallel.scale import choose
from parallel.scale.costs import Work
from tests.site.test_browser import check_accessible, check_width

SPEED, MULTIGPU = "series/1a_speed.html", "series/2_multigpu.html"
SCALE = "series/parallel_scale.html"
LONGEST = 20  # keys to reach a control, or a value of it


class Figure:
    def __init__(self, page, name):
        self.page, self.box = page, page.locator(f"figure[data-play={name}]")
        self.box.evaluate("one => { one.tabIndex = -1; }")

    def press(self, key, until):
        for _ in range(LONGEST):
            if self.page.evaluate(
                f"() => {{ const one = document.activeElement; return {until} }}"
            ):
                return
            self.page.keyboard.press(key)
        raise AssertionError(f"{until} is never true, however often one presses {key}")

    def reach(self, name):
        self.box.focus()
        self.press("Tab", f"(one.labels?.[0] ?? one).textContent === '{name}'")

    def set(self, **values):
        for name, text in values.items():
            self.reach(name)
            self.page.keyboard.press("Home")
            key = "ArrowDown" if name in ("model", "GPU") else "ArrowRight"
            shown = "(one.ariaValueText ?? one.selectedOptions[0].text)"
            self.press(key, f"{shown}.startsWith('{text}')")

    @property
    def says(self):
        return self.box.get_by_role("status").inner_text()


def test_the_ring_does_what_the_script_printed(window):
    page = window(SPEED)
    text = page.locator("article").inner_text()
    rows = re.findall(r"^(?:at first|add \d|copy \d) +\| (.*?)[ |]*$", text, re.MULTILINE)
    figure = Figure(page, "ring")
    figure.reach("step")
    for row in rows:
        cells = figure.box.locator("tr:not(:first-child) td").all_inner_texts()
        assert [int(cell.rstrip(" ↓")) for cell in cells] == [*map(int, re.findall(r"\d+", row))]
        page.keyboard.press("Enter")
    assert len(rows) == 7 and "Every rank holds 15 everywhere" in figure.says
    assert "= 1.50 times" in figure.says  # 2 × 3/4 of the tensor


@pytest.mark.parametrize(("model", "world", "bucket"), [(0, 2, 25), (1, 8, 50), (2, 256, 1)])
def test_the_overlap_is_that_of_the_model(window, model, world, bucket):
    figure, model = Figure(window(SPEED), "overlap"), step_time.MODELS[model]
    figure.set(model=model.name, processes=world, bandwidth="12.5 GB/s", latency="100 µs")
    figure.set(bucket=f"{bucket} MiB")
    facts = model, bucket * 2**20, world, 100e-6, 12.5e9
    overlapped, one_by_one = (f"{1000 * time:.1f} ms" for time in step_time.step(*facts))
    assert f"arrives after {overlapped}" in figure.says
    assert f"without overlap, after {one_by_one}." in figure.says
    bars = figure.box.locator(".send").first.locator("i")
    assert bars.count() == len(step_time.timeline(*facts))


@pytest.mark.parametrize(("world", "used"), [(2, True), (5, True), (7, False)])
def test_the_samples_of_each_rank_are_those_of_torch(window, world, used):
    figure = Figure(window(MULTIGPU), "set-epoch")
    figure.set(processes=world, epochs="8")
    if not used:
        figure.reach("call set_epoch")
        figure.page.keyboard.press("Space")
    rows = figure.box.get_by_role("img").evaluate_all(
        "rows => rows.map(row => [...row.children].map(one => one.textContent))"
    )
    wanted = [[[] for _ in range(32)] for _ in range(8)]
    for rank in range(world):
        sampler = DistributedSampler(range(32), num_replicas=world, rank=rank)
        for epoch in range(8):
            sampler.set_epoch(epoch if used else 0)
            for sample in sampler:
                wanted[epoch][sample].append(str(rank))
    assert rows == [[" ".join(ranks) for ranks in row] for row in wanted]
    assert ("3 samples are dealt twice" in figure.says) == (world > 2)


@pytest.mark.parametrize(("model", "gpu", "gpus", "link", "sequences"), [
    ("gpt2", "a100", 8, 100, 64), ("gpt2-xl", "h200", 64, 25, 64),
    ("llama3-8b", "h100", 128, 400, 256),
    ("llama3-70b", "b200", 1024, 100, 512), ("llama3-405b", "h100", 512, 400, 256),
    ("mixtral-8x7b", "h100", 64, 800, 1024),
])  # fmt: skip
def test_the_best_layout_is_that_of_the_tool(window, model, gpu, gpus, link, sequences):
    figure = Figure(window(SCALE), "scale")
    figure.set(model=model, GPU=gpu, GPUs=f"{gpus}", link=f"{link} G", sequences=f"{sequences}")
    on = choose.machine(gpu, 0.4, link)
    (speed, layout, work, spent, size), *_ = choose.ranked(
        choose.MODELS[model], gpus, Work(sequences, 8192), on
    )[0]
    again = ", activations computed again" * work.recompute
    told = f"Best: {layout}, micro-batches of {work.micro}{again}: {speed / gpus:,.0f} tokens/s per"
    assert told in figure.says
    text = figure.box.inner_text()
    assert f"{size['weights'] / 1e9:.0f} GB of weights" in text
    assert f"{size['activations'] / 1e9:.0f} GB of activations" in text
    for part in ("computing", "bubble", "messages"):
        assert f"{spent[part] / sum(spent.values()):.0%} {part}".replace("%", " %") in text
    half = choose.ranked(choose.MODELS[model], gpus // 2, Work(sequences, 8192), on)[0]
    assert (f"are {half[0][0] / speed:.0%} as".replace("%", " %") if half else "of ") in figure.says


@pytest.mark.parametrize("name", [SPEED, SCALE])
def test_without_javascript_there_is_the_figure_of_the_code(browser, host, name):
    with browser.new_context(base_url=host, java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(name)
        assert page.locator("figure:has(+ .picture-code + figure.play) svg.wide").last.is_visible()
        assert page.locator("figure.play").last.locator("input, button, select").count() == 0


@pytest.mark.parametrize("name", [SPEED, MULTIGPU, SCALE])
def test_in_use_they_are_accessible_and_fit_a_phone(window, name):
    page = window(name, 390)
    page.locator("figure.play input[type=range]").first.press("End")  # the most processes
    assert not page.locator("figure:has(+ .picture-code + figure.play)").last.is_visible()
    check_accessible(page, "figure.play")
    page.emulate_media(color_scheme="dark")
    page.evaluate("Promise.all(document.getAnimations().map(one => one.finished))")
    check_accessible(page, "figure.play", runOnly=["color-contrast"])
    check_width(page)
