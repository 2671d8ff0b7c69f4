#!/usr/bin/env bash
# Plain English: counts words and beginnings of sentences that CONTRIBUTING.md asks to avoid, in the comments of
# the sources and in the pages, for each 1,000 words. Prints the rates, and fails where one is above its limit.
#
# tokio 1.54's comments have 0.21 of the fourth class, and 0.11 or less of the others. The limits are three times that,
# but not below 0.3; for the pages, of which some are generated, what they are now. A limit may only be lowered.
set -euo pipefail
cd "$(dirname "$0")/.."

# check NAME LIMITS FILE…: the limits in the order of the classes.
check() {
    perl - "$@" <<'PERL'
use strict;
use warnings;
use open qw(:std :encoding(UTF-8));

my ($name, $limits, @files) = @ARGV;
# A sentence begins at the start of a paragraph, or behind a full stop or a colon.
my $start = qr/(?:^|(?<=[.:] ))/m;
my @classes = (
    ["whoever, whose", qr/\b(?:who|what|which)ever\b|\bwhose\b/i],
    ["a clause as subject", qr/$start(?:Who|What|Whoever|Where) (?!is it\b|if\b)[a-z]/],
    ["somebody, nobody", qr/\b(?:some|no)body\b/i],
    [
        "anew, hardly, at once …",
        qr/\b(?:anew|hardly|likewise|beside|lest|for want of|by turns|at once|in vain|of its own|of one's own|in any case|all the same|therefore)\b/,
    ],
    ["Of a …", qr/${start}Of (?:a|an|the|each|what|those|it)\b/],
);

my @paragraphs;
for my $file (@files) {
    open my $handle, '<', $file or die "$file: $!";
    my @lines = <$handle>;
    if ($file =~ /\.md$/) {
        my $text = join '', @lines;
        $text =~ s/```.*?```//gs;
        push @paragraphs, grep { !/^\s*\|/ } split /\n\n/, $text;
        next;
    }
    my ($block, $is_example) = ('', 0);
    for (@lines, '') {
        if (m{^\s*//[/!]? ?(.*)}) {
            my $text = $1;
            if ($text =~ /^```/) { $is_example = !$is_example; next }
            $block .= "$text " unless $is_example;
        } elsif ($block ne '') {
            push @paragraphs, $block;
            $block = '';
            $is_example = 0;
        }
    }
}
my $text = join "\n", @paragraphs;
my $words = () = $text =~ /\S+/g;
my @limits = split ' ', $limits;
my $is_over = 0;
print "$name: $words words\n";
for my $index (0 .. $#classes) {
    my ($class, $pattern) = @{$classes[$index]};
    my $count = () = $text =~ /$pattern/g;
    my $rate = 1000 * $count / $words;
    my $over = $rate > $limits[$index] ? "  above its limit, $limits[$index]" : '';
    $is_over ||= $over ne '';
    printf "  %.2f  %s%s\n", $rate, $class, $over;
}
exit $is_over;
PERL
}

status=0
check sources '0.33 0.30 0.30 0.63 0.30' $(git ls-files 'src/*.rs' 'crates/*.rs') || status=1
check pages '0.47 0.57 0.39 0.83 0.14' $(git ls-files 'docs/*.md' '*.md' | sort -u) || status=1
exit $status
