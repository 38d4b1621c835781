from vtune.report.curves import CHARTS, REST, chart_of, charts_of


def test_every_number_is_plotted_once_and_unknown_ones_separately() -> None:
    names = ["zeta", "reward", "iou@95", "iou@50", "reward_mine", "seconds_rollout", "eta"]
    charts = charts_of([*names, "reward"])
    assert sorted(name for chart in charts for name in chart["names"]) == sorted(names)
    assert [(chart["title"], chart["names"]) for chart in charts] == [
        ("reward", ["reward"]),
        ("of your own", ["reward_mine"]),
        ("IoU bands", ["iou@95", "iou@50"]),
        ("seconds of a step, by phase", ["seconds_rollout"]),
        ("zeta", ["zeta"]),
        ("eta", ["eta"]),
    ]
    assert [chart["family"] for chart in charts] == [False, True, True, True, False, False]


def test_no_curve_hides_another() -> None:
    assert CHARTS
    for chart in CHARTS:
        for name in chart.names:
            assert chart_of(name.replace("*", "x")) == chart or chart.group == REST
