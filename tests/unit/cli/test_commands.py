from pytest_tfperf.cli.main import COMMANDS, command_parser, commands_of


def test_a_module_has_the_commands_that_are_listed_for_it():
    for module in sorted(set(COMMANDS.values())):
        listed = [name for name, its_module in COMMANDS.items() if its_module == module]
        assert list(commands_of(command_parser(module))) == listed, module


def test_the_whole_parser_has_all_commands_in_their_order():
    assert list(commands_of(command_parser())) == list(COMMANDS)
