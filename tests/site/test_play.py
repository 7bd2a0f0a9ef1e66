"""The figures to play with: by keyboard, against calculations by hand and against Python."""

import re

import pytest
from torch.utils.data import DistributedSampler

from docs.theory import step_time
from tests.site import pages
from tests.site.conftest import watch
from tests.site.test_browser import check_accessible, check_width

pytestmark = [
    pytest.mark.site,
    pytest.mark.skipif(not pages(), reason="the site is not built: make docs"),
]
SPEED, MULTIGPU = "series/1a_speed.html", "series/2_multigpu.html"
PLACES = {"ring": SPEED, "overlap": SPEED, "set-epoch": MULTIGPU}
LONGEST = 20  # keys to reach a control, or a value of it


class Figure:
    """A figure of a page, used only by keyboard."""

    def __init__(self, page, name):
        self.page, self.box = page, page.locator(f"figure[data-play={name}]")
        self.box.evaluate("one => { one.tabIndex = -1; one.focus(); }")

    def press(self, key, until, start=None):
        if start:
            self.page.keyboard.press(start)
        for _ in range(LONGEST):
            if self.page.evaluate(until):
                return
            self.page.keyboard.press(key)
        raise AssertionError(f"{until} is never true, however often one presses {key}")

    def reach(self, name):
        self.box.focus()
        label = "(one.labels?.[0] ?? one).textContent"
        self.press(
            "Tab", f"() => {{ const one = document.activeElement; return {label} === '{name}' }}"
        )

    def set(self, **values):
        for name, text in values.items():
            self.reach(name)
            self.press(
                "ArrowRight", f"document.activeElement.ariaValueText === '{text}'", start="Home"
            )

    def click(self, name, times=1):
        self.reach(name)
        for _ in range(times):
            self.page.keyboard.press("Enter" if name in ("step", "back", "reset") else "Space")

    @property
    def says(self):
        return self.box.get_by_role("status").inner_text()

    def cells(self):
        rows = self.box.locator("tr").evaluate_all(
            "rows => rows.map(row => [...row.querySelectorAll('td')].map(cell => cell.textContent))"
        )
        return [[int(cell.rstrip(" ↓")) for cell in row] for row in rows[1:]]


def test_the_ring(window):
    figure = Figure(window(SPEED), "ring")

    figure.set(processes="2")
    figure.click("step")  # each sends its own chunk to the other
    assert figure.cells() == [[1, 1 + 2], [1 + 2, 2]]
    assert (
        "0.50 times" in figure.says and "all 2 rounds it sends 2 (2 − 1) / 2 = 1.00" in figure.says
    )

    figure.set(processes="3")
    figure.click("step", 2)  # the sums of two go on to the third
    assert figure.cells() == [[1, 7, 1 + 4], [1 + 2, 2, 7], [7, 2 + 4, 4]]
    assert "rank 0 sends chunk 2, rank 1 chunk 0, rank 2 chunk 1" in figure.says
    assert (
        "0.67 times" in figure.says and "all 4 rounds it sends 2 (3 − 1) / 3 = 1.33" in figure.says
    )

    figure.set(processes="8")
    figure.click("step", 15)  # the last has no effect
    assert figure.cells() == [[255] * 8] * 8
    assert "Round 14 of 14, copy" in figure.says and "Every rank holds 255" in figure.says
    assert "Each rank has sent 1.75 times" in figure.says and "= 1.75 times" in figure.says
    figure.click("back")
    assert "Round 13 of 14" in figure.says and figure.cells() != [[255] * 8] * 8
    figure.click("reset")
    assert figure.cells() == [[2**rank] * 8 for rank in range(8)]


def test_the_ring_of_the_figure_is_that_of_the_script(window):
    page = window(SPEED)
    text = page.locator("article").inner_text()
    rows = re.findall(r"^(?:at first|add \d|copy \d) +\| (.*)$", text, re.MULTILINE)
    assert len(rows) == 7
    figure = Figure(page, "ring")
    for row in rows:
        assert figure.cells() == [
            list(map(int, part.split())) for part in row.strip(" |").split("|")
        ]
        figure.click("step")


BY_HAND = [
    # One bucket of 3,251,200 bytes: 2 × 0.5 ms + 3,251,200 / 1.25e9 s = 3.6 ms after 19.4.
    (0, "2", "1.25 GB/s", "500 µs", "25 MiB", 1, 23.0, 23.0),
    # Two of 52,428,800 and 49,799,328 bytes: 0.2 + 4.19 ms and 0.2 + 3.98 ms. The first is full
    # after 120 × 52.4 / 102.2 = 61.5 ms, and is sent when the second is full, after 120.
    (1, "2", "12.5 GB/s", "100 µs", "50 MiB", 2, 124.2, 128.6),
    # One of 497,759,232 bytes: 6 × 0.001 ms + 6/4 × 497,759,232 / 50e9 s = 14.9 ms after 60.
    (2, "4", "50 GB/s", "1 µs", "500 MiB", 1, 74.9, 74.9),
]
MORE = [
    (1, "8", "1.25 GB/s", "50 µs", "25 MiB"),
    (2, "256", "0.125 GB/s", "5 µs", "1 MiB"),
    (0, "32", "3.125 GB/s", "20 µs", "1 MiB"),
    (1, "64", "6.25 GB/s", "200 µs", "4 MiB"),
]


def test_the_overlap(window):
    figure = Figure(window(SPEED), "overlap")
    for which, world, bandwidth, latency, bucket, *known in BY_HAND + MORE:
        figure.reach("model")
        figure.press("ArrowDown", f"document.activeElement.selectedIndex === {which}", start="Home")
        figure.set(processes=world, bandwidth=bandwidth, latency=latency, bucket=bucket)
        number = {text: float(text.split()[0]) for text in (bandwidth, latency, bucket)}
        network = int(world), number[latency] / 1e6, number[bandwidth] * 1e9
        model, size = step_time.MODELS[which], int(number[bucket] * 2**20)
        times = step_time.step(model, size, *network)
        count = len(step_time.timeline(model, size, *network))
        overlapped, one_by_one = (f"{1000 * time:.1f}" for time in times)
        if known:
            assert known == [count, float(overlapped), float(one_by_one)]
        assert re.search(rf"\b{count} all-reduces? takes? ", figure.says)
        assert f"arrives after {overlapped} ms" in figure.says, figure.says
        assert f"without overlap, after {one_by_one} ms." in figure.says, figure.says
        lane = figure.box.locator(".send").first
        bars = lane.locator("i").evaluate_all(
            "all => all.map(one => one.getBoundingClientRect().right)"
        )
        box = lane.bounding_box()
        assert len(bars) == count
        assert bars[-1] - box["x"] == pytest.approx(box["width"] * times[0] / times[1], abs=1.5)


def test_set_epoch(window):
    figure = Figure(window(MULTIGPU), "set-epoch")

    def compare(world, epochs, told):
        figure.set(processes=str(world), epochs=str(epochs))
        rows = figure.box.get_by_role("img").evaluate_all(
            "rows => rows.map(row => [...row.children].map(one => one.textContent))"
        )
        assert len(rows) == epochs
        for epoch, row in enumerate(rows):
            wanted = [[] for _ in range(32)]
            for rank in range(world):
                sampler = DistributedSampler(range(32), num_replicas=world, rank=rank)
                sampler.set_epoch(epoch if told else 0)
                for sample in sampler:
                    wanted[sample].append(str(rank))
            assert row == [" ".join(ranks) for ranks in wanted]
        return rows

    # 32 = 5 × 7 - 3: the first three, on ranks 0, 1 and 2, are dealt again to ranks 2, 3 and 4.
    rows = compare(5, 2, told=True)
    assert sorted(one for one in rows[1] if " " in one) == ["0 2", "1 3", "2 4"]
    assert "Rank 0 has 7 samples" in figure.says and "3 samples are dealt twice" in figure.says
    # 32 = 3 × 11 - 1: the first is dealt again, to rank 2.
    rows = compare(3, 8, told=True)
    assert [one for one in rows[7] if " " in one] == ["0 2"]
    assert "Rank 0 has 11 samples" in figure.says and "1 sample is dealt twice" in figure.says
    # One rank has everything.
    assert compare(1, 1, told=True) == [["0"] * 32]
    assert figure.says.endswith("in this epoch 32 of the 32.")

    compare(8, 8, told=True)
    assert "Every epoch deals the samples anew." in figure.says
    figure.click("call set_epoch")
    for world in (2, 7):
        compare(world, 5, told=False)
    assert (
        "Every epoch is the same. Rank 0 has 5 samples per epoch, and in these 5 epochs 5 of"
        in figure.says
    )


@pytest.mark.parametrize("name", [SPEED, MULTIGPU])
def test_without_javascript(browser, host, name):
    trouble = []
    with browser.new_context(base_url=host, java_script_enabled=False) as context:
        page = context.new_page()
        watch(page, host, trouble)
        page.goto(name)
        for figure in page.locator("figure.play").all():
            assert figure.locator("svg.picture.wide").is_visible()
            assert figure.locator("> figcaption").is_visible()
            assert figure.locator("input, button, select, [role=status]").count() == 0
    assert not trouble


def test_in_use_they_are_accessible_and_fit_a_phone(window):
    for place in (SPEED, MULTIGPU):
        page = window(place, 390)
        for name in (name for name in PLACES if PLACES[name] == place):
            figure = Figure(page, name)
            figure.set(processes={"ring": "8", "overlap": "256", "set-epoch": "7"}[name])
            if name == "ring":
                figure.click("step", 6)
            assert not figure.box.locator("svg.picture.narrow").is_visible()
        check_accessible(page, "figure.play")
        page.emulate_media(color_scheme="dark")
        page.evaluate("Promise.all(document.getAnimations().map(one => one.finished))")
        check_accessible(page, "figure.play", runOnly=["color-contrast"])
        check_width(page)
        wide = "figures => figures.map(one => one.scrollWidth - one.clientWidth)"
        assert max(page.locator("figure.play").evaluate_all(wide)) <= 0
