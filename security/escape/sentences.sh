# shellcheck shell=sh
# Results, as sentences. SENTENCE says what is so when all is well; CASES name the attacks.

good=0 bad=0 skipped=0
skips=''

# ok SENTENCE CASES
ok() {
    good=$((good + 1))
    printf 'ok - %s [%s]\n' "$1" "$2"
}

# not_ok SENTENCE CASES WHY...: why is shown with nothing in it that a terminal would obey.
not_ok() {
    bad=$((bad + 1))
    printf 'not ok - %s [%s]\n' "$1" "$2"
    shift 2
    printf '%s\n' "$@" | shown | head -n 20
}

# skip SENTENCE CASES WHY
skip() {
    skipped=$((skipped + 1))
    skips="$skips
  $1: $3"
    printf 'ok - %s [%s] # SKIP %s\n' "$1" "$2" "$3"
}

# is WHAT-IS-SO SENTENCE CASES WHY...: WHAT-IS-SO is yes or anything else.
is() {
    if [ "$1" = yes ]; then
        ok "$2" "$3"
    else
        shift
        not_ok "$@"
    fi
}

# same HAVE WANT SENTENCE CASES
same() {
    if [ "$1" = "$2" ]; then
        ok "$3" "$4"
    else
        not_ok "$3" "$4" "want: $2" "have: $1"
    fi
}

# at_most HAVE MOST SENTENCE CASES: numbers; no number is not ok.
at_most() {
    if [ "$1" -le "$2" ] 2>/dev/null; then
        ok "$3" "$4"
    else
        not_ok "$3" "$4" "at most: $2" "have: $1"
    fi
}

# at_least HAVE LEAST SENTENCE CASES
at_least() {
    if [ "$1" -ge "$2" ] 2>/dev/null; then
        ok "$3" "$4"
    else
        not_ok "$3" "$4" "at least: $2" "have: $1"
    fi
}

# Foreign bytes as lines of a diagnostic; flags are cut short, so that our own output holds none.
shown() {
    tr -c '\11\12\40-\176' '?' | sed -e 's/\(BOXFLAG-[a-z]*\)-[0-9a-f]*/\1-.../g' -e 's/^/  # /'
}

summary() {
    [ "$parts" = "$all_parts" ] || printf 'only a part of the suite was run: %s\n' "$parts"
    [ "$skipped" = 0 ] || printf 'skipped:%s\n' "$skips"
    printf '%s ok, %s not ok, %s skipped (%s, %s, %s)\n' \
        "$good" "$bad" "$skipped" "$backend" "$isolation" "$(id -un)"
    [ "$bad" = 0 ] || exit 1
    exit 0
}

# The suite itself cannot go on: neither ok nor an escape.
give_up() {
    printf 'escape-test: %s\n' "$1" >&2
    shift
    [ $# = 0 ] || printf '%s\n' "$*" | shown | tail -n 20 >&2
    exit 2
}
