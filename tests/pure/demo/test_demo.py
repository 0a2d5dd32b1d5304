from slipstream.demo import demo_drafter_path, demo_path


def test_the_demo_lies_inside_the_package_with_its_head_beside_it() -> None:
    assert demo_path().name == "checkpoint"
    assert demo_drafter_path().name == "eagle3"
    assert demo_path().parent == demo_drafter_path().parent
    assert demo_path().parent.name == "demo"
