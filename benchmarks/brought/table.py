"""placeholder"""


def page(*a):
    return []
