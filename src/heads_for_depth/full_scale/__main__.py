"""`python -m heads_for_depth.full_scale`, alone or under torchrun."""

from heads_for_depth.full_scale.command import main

raise SystemExit(main())
