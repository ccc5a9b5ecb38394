"""The recipes for pipelines: syntax, what they may do, and their shell, run against a stand-in forge."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import jsonschema
import pytest

from gpuclusters.cli.forge import Forge
from tests.review.catalogue import loading
from tests.review.forge_standin import TOKEN, Standin, forge
from tests.review.recipes import assert_harmless, recipe, runner, scripts, shell

SCHEMAS = Path(__file__).with_name("schemas")


@pytest.mark.parametrize(
    ("name", "schema"),
    [
        ("github-actions.yml", "github-workflows"),
        ("gitlab-ci.yml", "gitlab-ci"),
        ("drift-github-actions.yml", "github-workflows"),
        ("drift-gitlab-ci.yml", "gitlab-ci"),
    ],
)
def test_a_recipe_is_valid_by_the_schema_of_its_forge(name: str, schema: str) -> None:
    document = json.loads((SCHEMAS / f"{schema}.json").read_text())
    validator = jsonschema.validators.validator_for(document)(document)
    assert [error.message for error in validator.iter_errors(recipe(name))] == []
    wrong = recipe(name)
    wrong["jobs" if "jobs" in wrong else "review"] = {"x": {"runs-on": 3}}
    assert list(validator.iter_errors(wrong)), "the schema refuses nothing"


def test_the_workflow_has_least_rights_pinned_actions_and_nothing_for_forks() -> None:
    workflow = recipe("github-actions.yml")
    assert workflow["on"] == {"pull_request": None}
    assert workflow["permissions"] == {}
    jobs = workflow["jobs"]
    assert jobs["stacks"]["permissions"] == {"contents": "read", "id-token": "write"}
    assert jobs["comment"]["permissions"] == {"contents": "read", "pull-requests": "write"}
    assert "head.repo.full_name == github.repository" in jobs["stacks"]["if"]
    assert jobs["comment"]["needs"] == "stacks"
    assert "matrix.stack" in jobs["stacks"]["concurrency"]["group"]
    assert_harmless("github-actions.yml")
    # Secrets of the cloud and the token that comments are never in one job.
    assert "secrets." not in json.dumps(jobs["comment"])


def test_the_pipeline_of_gitlab_runs_for_merge_requests_of_its_own_project_only() -> None:
    pipeline = recipe("gitlab-ci.yml")
    (rule,) = pipeline[".fleet"]["rules"]
    assert "$CI_MERGE_REQUEST_SOURCE_PROJECT_ID == $CI_PROJECT_ID" in rule["if"]
    assert re.search(r":\d+\.\d+\.\d+$", pipeline[".fleet"]["image"]["name"])
    assert pipeline["preview"]["resource_group"] == "review-$STACK"
    assert "id_tokens" in pipeline["preview"]


OURS = """\
import typer
from gpuclusters.cli import review
from gpuclusters.cli.errors import RunError, UsageError
app = typer.Typer()
app.command("review")(review.command)
app.command("other")(lambda: None)
try:
    app()
except (UsageError, RunError) as error:
    sys.exit(str(error))
"""


def machine(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    work, env = runner(
        tmp_path,
        OURS,
        pulumi='[ "$1 $2 $3" = "preview --stack $STACK" ] || exit 9\n'
        f'case "$*" in *--json*--show-sames*) cat {tmp_path}/given/$STACK.json ;; *) exit 9 ;; esac\n',
        gh=f"mkdir -p plans/plan-prod\ncp {tmp_path}/given/*.json plans/plan-prod\n",
    )
    (tmp_path / "given/prod.json").write_text(loading.text("tenant-removed"))
    return work, env


def check_comment(standin: Standin, work: Path) -> None:
    (comment,) = standin.comments
    assert comment["body"].startswith("## 🔴 dangerous: stack `prod`")
    assert "tenant globex goes" in comment["body"]
    assert (work / "review/review.html").is_file()


def test_the_shell_of_the_workflow_comments_and_stops_at_a_gate(tmp_path: Path) -> None:
    jobs = recipe("github-actions.yml")["jobs"]
    work, env = machine(tmp_path)
    assert shell(scripts(jobs["stacks"])["preview"], work, env).returncode == 0
    assert (work / "plans/prod.json").read_text() == (tmp_path / "given/prod.json").read_text()
    shutil.rmtree(work / "plans")
    with forge() as standin:
        env |= standin.environment(Forge.GITHUB)
        env |= {"GH_TOKEN": TOKEN, "GITHUB_RUN_ID": "1", "FAIL_ON": "", "ARTIFACT": "of run 1"}
        assert shell(scripts(jobs["comment"])["plans"], work, env).returncode == 0
        done = shell(scripts(jobs["comment"])["review"], work, env)
        assert done.returncode == 0, done.stderr
        again = shell(scripts(jobs["comment"])["review"], work, {**env, "FAIL_ON": "delete,policy"})
        assert again.returncode == 5
        check_comment(standin, work)
        assert [c for c in standin.calls if not c.startswith("GET")] == [
            "POST /repos/acme/fleet/issues/7/comments"
        ]
        assert TOKEN not in done.stdout + done.stderr + again.stderr


def test_the_shell_of_the_workflow_shows_a_preview_that_failed(tmp_path: Path) -> None:
    jobs = recipe("github-actions.yml")["jobs"]
    work, env = machine(tmp_path)
    failed = json.dumps(
        {
            **loading.document("nothing"),
            "diagnostics": [{"severity": "error", "message": "no quota"}],
        }
    )
    (tmp_path / "given/prod.json").write_text(failed)
    with forge() as standin:
        env |= {**standin.environment(Forge.GITHUB), "FAIL_ON": "", "ARTIFACT": "x"}
        assert shell(scripts(jobs["comment"])["plans"], work, env).returncode == 0
        assert shell(scripts(jobs["comment"])["review"], work, env).returncode == 1
        assert "no quota" in standin.comments[0]["body"]


def test_the_shell_of_the_pipeline_of_gitlab_comments(tmp_path: Path) -> None:
    pipeline = recipe("gitlab-ci.yml")
    work, env = machine(tmp_path)
    env |= {
        "PULUMI_BACKEND_URL": "gs://states", "CLOUD_TOKEN": "made.up.token", "CI_PROJECT_DIR": str(work),
        "WORKLOAD_IDENTITY_PROVIDER": "projects/1/pool", "PREVIEW_SERVICE_ACCOUNT": "preview@example.com",
    }  # fmt: skip
    done = shell("\n".join(pipeline["preview"]["script"]), work, env)
    assert done.returncode == 0, done.stderr
    credentials = json.loads((work / ".cloud.json").read_text())
    assert credentials["audience"] == "//iam.googleapis.com/projects/1/pool"
    assert (work / ".cloud-token").stat().st_mode & 0o077 == 0
    with forge() as standin:
        standin.app = False
        env |= standin.environment(Forge.GITLAB)
        env |= {"CI_JOB_URL": "https://gitlab.example/1", "REVIEW_FAIL_ON": ""}
        for _ in range(2):
            done = shell("\n".join(pipeline["review"]["script"]), work, env)
            assert done.returncode == 0, done.stderr
        check_comment(standin, work)
