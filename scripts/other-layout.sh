#!/bin/sh
# The compiler for scripts/former.sh, as cargo calls it.
exec "$@" --cfg other_layout
