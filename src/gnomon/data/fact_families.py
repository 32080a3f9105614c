"""Relation families of the fact world: how each kind of event is reported, denied and searched for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Family:
    """One kind of event.

    Args:
        name: Slug.
        half: ``fit`` or ``evaluation``.
        affirmed: Templates that report the event; slots org, other, person, city, product, date, month, year, amount.
        denied: Templates that deny it.
        searches: What someone looking for such events types.
        amounts: Range of the amount.
        money: Whether the amount is money.
        relational: Whether the event has two organisations whose order matters.
    """

    name: str
    half: str
    affirmed: tuple[str, ...]
    denied: tuple[str, ...]
    searches: tuple[str, ...]
    amounts: tuple[int, int] = (100, 5_000)
    money: bool = False
    relational: bool = False


FAMILIES = (
    Family(
        "opening",
        "fit",
        (
            "{org} opened a new factory in {city} on {date}, creating {amount} jobs.",
            "A new factory of {org} was opened in {city} on {date}; it created {amount} jobs.",
            "The opening of a {org} plant in {city} on {date} brought {amount} new jobs.",
            "On {date}, {org} started production at its new site in {city} with {amount} workers.",
        ),
        (
            "{org} called off the factory it had planned for {city} in {year}.",
            "No factory was opened by {org} in {city} in {year}.",
        ),
        (
            "new factory opened",
            "opening of a production plant",
            "a company starts production at a new site",
            "jobs created by a new plant",
        ),
    ),
    Family(
        "strike",
        "fit",
        (
            "Workers at {org} went on strike in {city} on {date}, and {amount} employees took part.",
            "A strike of {amount} employees stopped work at {org} in {city} on {date}.",
            "On {date}, {amount} staff of {org} laid down their tools in {city}.",
            "{org} was hit by a walkout of {amount} workers in {city} on {date}.",
        ),
        (
            "The strike announced at {org} in {city} for {month} {year} did not take place.",
            "Workers at {org} in {city} never went on strike in {year}.",
        ),
        (
            "workers on strike",
            "a walkout stopped work",
            "employees laid down their tools",
            "industrial action at a company",
        ),
    ),
    Family(
        "lawsuit",
        "fit",
        (
            "{org} sued {other} in {city} on {date}, seeking {amount} in damages.",
            "{other} was sued by {org} for {amount} before a court in {city} on {date}.",
            "A lawsuit of {org} against {other} over {amount} was filed in {city} on {date}.",
            "On {date}, {org} took {other} to court in {city}, demanding {amount}.",
        ),
        (
            "{org} dropped its plan to sue {other} in {city} in {year}.",
            "No lawsuit against {other} was brought by {org} in {city} in {year}.",
        ),
        (
            "lawsuit between companies",
            "sued for damages",
            "one firm takes another to court",
            "a claim filed before a court",
        ),
        (200_000, 40_000_000),
        True,
        True,
    ),
    Family(
        "donation",
        "fit",
        (
            "{org} donated {amount} to the hospital of {city} on {date}.",
            "The hospital of {city} received a donation of {amount} from {org} on {date}.",
            "A gift of {amount} by {org} to the hospital of {city} was announced on {date}.",
            "On {date}, {amount} was given by {org} to the hospital of {city}.",
        ),
        (
            "{org} withdrew its promised gift to the hospital of {city} in {year}.",
            "The hospital of {city} received no donation from {org} in {year}.",
        ),
        ("donation to a hospital", "a company gave money to charity", "gift for a clinic", "corporate giving"),
        (50_000, 9_000_000),
        True,
    ),
    Family(
        "acquisition",
        "fit",
        (
            "{org} acquired {other} for {amount}, it was announced in {city} on {date}.",
            "{other} was bought by {org} for {amount} in a deal signed in {city} on {date}.",
            "The takeover of {other} by {org} for {amount} was completed in {city} on {date}.",
            "On {date}, {org} paid {amount} in {city} to take over {other}.",
        ),
        (
            "{org} gave up its bid for {other}, people in {city} said in {year}.",
            "The takeover of {other} by {org} never happened, it was said in {city} in {year}.",
        ),
        ("company takeover", "a firm was bought by another", "acquisition deal signed", "merger completed"),
        (1_000_000, 900_000_000),
        True,
        True,
    ),
    Family(
        "appointment",
        "fit",
        (
            "{org} named {person} as chief executive in {city} on {date}.",
            "{person} was appointed chief executive of {org} in {city} on {date}.",
            "The appointment of {person} at the head of {org} was made public in {city} on {date}.",
            "On {date}, {person} took charge of {org} in {city}.",
        ),
        (
            "{person} refused the post of chief executive at {org} in {city} in {year}.",
            "{org} did not name {person} as chief executive in {city} in {year}.",
        ),
        (
            "new chief executive named",
            "appointment of a company head",
            "who took charge of the firm",
            "change of leadership",
        ),
    ),
    Family(
        "recall",
        "fit",
        (
            "{org} recalled {amount} {product} sold in {city} on {date}.",
            "{amount} {product} made by {org} were recalled in {city} on {date}.",
            "A recall of {amount} {product} by {org} was ordered in {city} on {date}.",
            "On {date}, {org} took back {amount} {product} from shops in {city}.",
        ),
        (
            "{org} decided against a recall of its {product} in {city} in {year}.",
            "No {product} of {org} were recalled in {city} in {year}.",
        ),
        ("product recall", "goods taken back from shops", "faulty products recalled", "a maker recalls what it sold"),
        (500, 90_000),
    ),
    Family(
        "revenue",
        "fit",
        (
            "{org} reported revenue of {amount} in {city} on {date}.",
            "Revenue of {amount} was reported by {org} in {city} on {date}.",
            "The yearly figures of {org}, shown in {city} on {date}, put revenue at {amount}.",
            "On {date}, {org} said in {city} that its sales had reached {amount}.",
        ),
        (
            "{org} put off the report of its revenue in {city} in {year}.",
            "No revenue figures were given by {org} in {city} in {year}.",
        ),
        ("reported revenue", "yearly sales figures", "turnover of a company", "financial results announced"),
        (2_000_000, 800_000_000),
        True,
    ),
    Family(
        "permit",
        "fit",
        (
            "{org} received a permit to build a warehouse in {city} on {date}.",
            "A building permit for a warehouse in {city} was granted to {org} on {date}.",
            "The council of {city} gave {org} permission for a warehouse on {date}.",
            "On {date}, {org} was allowed to build a warehouse in {city}.",
        ),
        (
            "The council of {city} refused {org} a permit for a warehouse in {year}.",
            "{org} never received permission to build in {city} in {year}.",
        ),
        (
            "building permit granted",
            "permission to build a warehouse",
            "council approves construction",
            "planning approval",
        ),
    ),
    Family(
        "hiring",
        "fit",
        (
            "{org} hired {amount} engineers in {city} on {date}.",
            "{amount} engineers were hired by {org} in {city} on {date}.",
            "The hiring of {amount} engineers by {org} in {city} was completed on {date}.",
            "On {date}, {amount} engineers joined {org} in {city}.",
        ),
        (
            "{org} stopped all hiring in {city} in {year}.",
            "No engineers were hired by {org} in {city} in {year}.",
        ),
        ("engineers hired", "a firm recruits staff", "new employees joined", "recruitment drive"),
    ),
    Family(
        "fire",
        "evaluation",
        (
            "A fire destroyed a warehouse of {org} in {city} on {date}; the damage came to {amount}.",
            "A warehouse of {org} in {city} burned down on {date}, at a loss of {amount}.",
            "On {date}, flames swept through the {org} depot in {city} and caused damage of {amount}.",
            "{org} lost {amount} when its depot in {city} caught fire on {date}.",
        ),
        (
            "The fire alarm at {org} in {city} in {year} turned out to be false.",
            "No building of {org} in {city} caught fire in {year}.",
        ),
        ("warehouse fire", "a depot burned down", "damage caused by flames", "building destroyed by a blaze"),
        (100_000, 30_000_000),
        True,
    ),
    Family(
        "award",
        "evaluation",
        (
            "{person} of {org} won the national design award in {city} on {date}.",
            "The national design award went to {person} of {org} in {city} on {date}.",
            "At a ceremony in {city} on {date}, {person} of {org} was given the national design award.",
            "On {date}, judges in {city} chose {person} of {org} for the national design award.",
        ),
        (
            "{person} of {org} turned down the national design award in {city} in {year}.",
            "The design award in {city} did not go to {person} of {org} in {year}.",
        ),
        ("design award won", "prize ceremony", "who was honoured by the judges", "a designer receives a prize"),
    ),
    Family(
        "emissions",
        "evaluation",
        (
            "{org} cut its emissions in {city} by {amount} tonnes, it said on {date}.",
            "Emissions of {org} in {city} were reduced by {amount} tonnes, according to a report of {date}.",
            "A reduction of {amount} tonnes in the emissions of {org} in {city} was confirmed on {date}.",
            "On {date}, {org} announced that its site in {city} now emits {amount} tonnes less.",
        ),
        (
            "{org} failed to cut its emissions in {city} in {year}.",
            "Emissions of {org} in {city} were not reduced in {year}.",
        ),
        ("emissions reduced", "less pollution from a plant", "a company cuts carbon", "tonnes of greenhouse gas saved"),
        (500, 90_000),
    ),
    Family(
        "supply",
        "evaluation",
        (
            "{org} agreed to supply {other} with {amount} {product} in {city} on {date}.",
            "{other} will be supplied with {amount} {product} by {org}, under a contract signed in {city} on {date}.",
            "A contract for {amount} {product} from {org} to {other} was signed in {city} on {date}.",
            "On {date}, {org} won an order from {other} for {amount} {product} in {city}.",
        ),
        (
            "{org} refused to supply {other} with {product} in {city} in {year}.",
            "The supply contract between {org} and {other} was never signed in {city} in {year}.",
        ),
        ("supply contract signed", "large order won", "a supplier agrees to deliver goods", "delivery agreement"),
        (500, 90_000),
        False,
        True,
    ),
    Family(
        "breach",
        "evaluation",
        (
            "Hackers stole {amount} customer records from {org} in {city} on {date}.",
            "{amount} customer records were stolen from {org} in {city} on {date}.",
            "A data breach at {org} in {city} exposed {amount} customer records on {date}.",
            "On {date}, intruders broke into the computers of {org} in {city} and copied {amount} records.",
        ),
        (
            "{org} denied that any customer records were stolen in {city} in {year}.",
            "No data breach occurred at {org} in {city} in {year}.",
        ),
        ("data breach", "customer records stolen", "hackers broke into computers", "leak of personal data"),
        (1_000, 900_000),
    ),
    Family(
        "apprentices",
        "evaluation",
        (
            "{org} took on {amount} apprentices in {city} on {date}.",
            "{amount} apprentices began their training at {org} in {city} on {date}.",
            "The training scheme of {org} in {city} welcomed {amount} apprentices on {date}.",
            "On {date}, {amount} school leavers started an apprenticeship with {org} in {city}.",
        ),
        (
            "{org} cancelled its training scheme in {city} in {year}.",
            "No apprentices were taken on by {org} in {city} in {year}.",
        ),
        (
            "apprentices taken on",
            "training scheme for school leavers",
            "young people start vocational training",
            "apprenticeship programme",
        ),
    ),
    Family(
        "relocation",
        "evaluation",
        (
            "{org} moved its headquarters to {city} on {date}.",
            "The headquarters of {org} were moved to {city} on {date}.",
            "The relocation of the {org} head office to {city} was finished on {date}.",
            "On {date}, {org} left its old offices and settled in {city}.",
        ),
        (
            "{org} gave up the plan to move its headquarters to {city} in {year}.",
            "The headquarters of {org} did not move to {city} in {year}.",
        ),
        (
            "headquarters moved",
            "relocation of a head office",
            "a company settles in another town",
            "new location of the firm",
        ),
    ),
    Family(
        "fine",
        "evaluation",
        (
            "A regulator in {city} fined {org} {amount} on {date}.",
            "{org} was fined {amount} by a regulator in {city} on {date}.",
            "A penalty of {amount} was imposed on {org} in {city} on {date}.",
            "On {date}, {org} was ordered in {city} to pay a fine of {amount}.",
        ),
        (
            "The fine against {org} was lifted by a regulator in {city} in {year}.",
            "{org} escaped without a fine in {city} in {year}.",
        ),
        (
            "fined by a regulator",
            "penalty imposed on a company",
            "a firm ordered to pay a fine",
            "sanction for breaking rules",
        ),
        (20_000, 9_000_000),
        True,
    ),
    Family(
        "prototype",
        "evaluation",
        (
            "{org} tested a prototype of its electric truck in {city} on {date}.",
            "A prototype of the {org} electric truck was tested in {city} on {date}.",
            "The first trial of the {org} electric truck took place in {city} on {date}.",
            "On {date}, an electric truck built by {org} made its first drive through {city}.",
        ),
        (
            "{org} abandoned the test of its electric truck in {city} in {year}.",
            "The electric truck of {org} was never tested in {city} in {year}.",
        ),
        (
            "electric truck prototype tested",
            "first trial of a new vehicle",
            "test drive of a truck",
            "experimental vehicle on the road",
        ),
    ),
    Family(
        "sponsorship",
        "evaluation",
        (
            "{org} became the main sponsor of the {city} marathon on {date}, paying {amount}.",
            "The {city} marathon won {org} as its main sponsor for {amount} on {date}.",
            "A sponsorship of {amount} by {org} for the {city} marathon was agreed on {date}.",
            "On {date}, {org} put {amount} into the marathon of {city}.",
        ),
        (
            "{org} ended its sponsorship of the {city} marathon in {year}.",
            "{org} did not sponsor the marathon of {city} in {year}.",
        ),
        ("marathon sponsor", "sponsorship of a sports event", "a company finances a race", "who pays for the city run"),
        (20_000, 2_000_000),
        True,
    ),
)
