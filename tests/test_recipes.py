"""Recipes and budgets: frozen, small numbers that can be checked by hand."""

import dataclasses
import json

import pytest

from heads_for_depth.datasets import VALIDATION_IMAGES
from heads_for_depth.errors import BadInput
from heads_for_depth.recipes import BUDGETS, PROFILES, Recipe, budget

RECIPE = Recipe(train_images=1_000, epochs=3, batch_size=64, learning_rate=None)


def test_an_incomplete_last_batch_is_not_a_step():
    assert RECIPE.steps == 3 * 15
    assert dataclasses.replace(RECIPE, train_images=960).steps == 3 * 15
    assert dataclasses.replace(RECIPE, train_images=959).steps == 3 * 14


def test_choosing_a_learning_rate_changes_nothing_else():
    chosen = RECIPE.with_learning_rate(2e-3)
    assert chosen.learning_rate == 2e-3
    assert dataclasses.replace(chosen, learning_rate=None) == RECIPE


def test_a_recipe_survives_its_record():
    values = json.loads(json.dumps(RECIPE.as_dict()))
    assert Recipe(**values | {"betas": tuple(values["betas"])}) == RECIPE


def test_a_recipe_cannot_be_changed_in_place():
    with pytest.raises(dataclasses.FrozenInstanceError):
        RECIPE.epochs = 4  # type: ignore[misc]


@pytest.mark.parametrize("profile", sorted(BUDGETS))
def test_every_budget_fits_its_data_and_leaves_the_learning_rate_to_tuning(profile: str):
    money = budget(profile)
    for recipe in (money.recipe, money.tuning):
        assert recipe.learning_rate is None
        assert recipe.batch_size <= recipe.train_images <= 60_000 - VALIDATION_IMAGES
        assert recipe.evaluation_images <= 10_000
        assert recipe.steps >= 1
    assert list(money.learning_rates) == sorted(set(money.learning_rates))
    assert len(money.learning_rates) >= 2
    assert money.declared_seeds >= 8


def test_a_verdict_needs_eight_seeds_and_the_published_profile_plans_them():
    assert budget("cpu").declared_seeds == 8
    assert budget("cpu").seeds == 8


@pytest.mark.parametrize("profile", ["full", "huge", ""])
def test_a_profile_without_a_budget_is_refused_with_those_that_have_one(profile: str):
    with pytest.raises(BadInput, match=rf"profile is '{profile}': use one of smoke, cpu, gpu"):
        budget(profile)


def test_every_budget_belongs_to_a_profile():
    assert set(BUDGETS) <= set(PROFILES)
