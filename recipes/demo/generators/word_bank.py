"""Names and things that the generators draw from."""

from __future__ import annotations

import random

MADE_UP_SHARE = 0.15


def words(text: str) -> tuple[str, ...]:
    """Split a list of words at white space."""
    return tuple(text.split())


NAMES = words(
    """
    Anna Ben Clara David Emma Felix Grace Henry Iris Jack Kate Leo Maria Noah Olivia Paul Rosa Sam
    Tina Victor Alice Bob Daniel Ella Frank Hanna Ivan Julia Karl Lena Max Nina Oscar Peter Sara Tom
    Vera Will Zoe Adam Eva George Helen Lucas Mia Nora Simon Sofia Theo Lily Mark Jane Eric Amy Luis
    Omar Aisha Yuki Chen Priya
    """
)
THINGS = words(
    """
    apples pears oranges lemons plums cookies books pencils stamps marbles coins stickers cards
    shells buttons flowers eggs candles balloons cakes keys boxes bottles cups plates stones beads
    tickets photos toys sandwiches carrots potatoes tomatoes melons peaches nuts muffins notebooks
    pens crayons ribbons
    """
)
SHOP_THINGS = words(
    """
    notebook pencil cup plate book bottle candle ticket toy shirt hat lamp cake muffin basket pen
    bag ball kite bowl spoon chair clock
    """
)
CONTAINERS = (
    ("box", "boxes"),
    ("bag", "bags"),
    ("basket", "baskets"),
    ("jar", "jars"),
    ("shelf", "shelves"),
    ("crate", "crates"),
    ("row", "rows"),
    ("tray", "trays"),
)
COLORS = words(
    """
    red blue green yellow white black brown purple orange pink gray silver golden
    """
)
PLACES = words(
    """
    kitchen garden library office school market station museum hotel bakery park theater hospital
    farm workshop castle harbor cafe gym studio
    """
)
CITIES = words(
    """
    Oslo Rome Paris Berlin Madrid Lisbon Vienna Prague Dublin London Athens Warsaw Helsinki Boston
    Chicago Denver Toronto Sydney Tokyo Lima Cairo Delhi Seoul Bern Riga
    """
)
JOBS = words(
    """
    teacher nurse baker farmer doctor driver painter writer cook gardener carpenter singer pilot
    dentist tailor waiter builder lawyer plumber barber
    """
)
PETS = words(
    """
    cat dog rabbit parrot hamster turtle horse goat duck pony
    """
)
PET_NAMES = words(
    """
    Milo Luna Bella Max Coco Rocky Daisy Oscar Ruby Toby Molly Sunny Pepper Hazel Biscuit Ginger
    """
)
WEEKDAYS = words(
    """
    Monday Tuesday Wednesday Thursday Friday Saturday Sunday
    """
)
OBJECTS = words(
    """
    box door bag drawer chest cabinet room locker house car bike boat tower gate desk safe
    """
)
HOBBIES = words(
    """
    painting cooking reading swimming running singing fishing dancing knitting hiking chess drawing
    """
)
FOODS = words(
    """
    pizza soup rice bread pasta salad cheese cake fish honey noodles pancakes
    """
)
SHE = words(
    """
    Anna Clara Emma Grace Iris Kate Maria Olivia Rosa Tina Alice Ella Hanna Julia Lena Nina Sara Vera Zoe Eva
    Helen Mia Nora Sofia Lily Jane Amy Aisha Yuki Priya
    """
)
HE = words(
    """
    Ben David Felix Henry Jack Leo Noah Paul Sam Victor Bob Daniel Frank Ivan Karl Max Oscar Peter Tom Will Adam
    George Lucas Simon Theo Mark Eric Luis Omar Chen
    """
)
STORY_THINGS = words(
    """
    ball book kite hat key cup bag lamp clock coin ring boat flute box map cart doll bell scarf
    """
)
# Never in a training story; evaluation asks for them.
HELD_OUT_STORY_THINGS = words("basket bottle candle pencil")
SYLLABLES = words(
    """
    ba be bo da de do fa fi ga go ha ka ki la le lo ma me mi mo na ne no pa po ra re ri ro sa se so ta te to va vi
    za zo
    """
)


def draw_name(rng: random.Random) -> str:
    """Return a name; a share is made up of syllables, so that it has to be copied and cannot be looked up."""
    if rng.random() >= MADE_UP_SHARE:
        return rng.choice(NAMES)
    return "".join(rng.choice(SYLLABLES) for _ in range(rng.choice((2, 2, 3)))).capitalize()
