# Runs cases, prints what was measured, and keeps it; writes RESULTS.md from what was kept.
package Bench::Report;

use strict;
use warnings;
use Cwd 'abs_path';
use FindBin;
use JSON::PP;

my $root = abs_path("$FindBin::RealBin/..");
my $kept = "$root/build/bench/results";    # a file per case
my $json = JSON::PP->new->canonical->pretty;

# --- numbers as text -------------------------------------------------------------------------

sub thousands
{
    my ($number) = @_;
    my $text = sprintf '%.0f', $number;
    1 while $text =~ s/^(\d+)(\d{3})/$1,$2/;
    return $text;
}

sub latency
{
    my ($histogram) = @_;
    return sprintf 'p50 %.2f p99 %.2f max %.2f ms', map { $histogram->{$_} / 1000 } qw(p50 p99 max);
}

# What a measurement shows, in this order: the member, and how it is written.
my @columns = (
    [ rate => sub { thousands($_[0]) . ' messages/s' } ],
    [ push_us => sub { $_[0]{count} ? 'push ' . latency($_[0]) : () } ],
    [ pop_us => sub { $_[0]{count} ? 'pop ' . latency($_[0]) : () } ],
    [ ack_us => sub { $_[0]{count} ? 'ack ' . latency($_[0]) : () } ],
    [ delivery_us => sub { $_[0]{count} ? 'end to end ' . latency($_[0]) : () } ],
    [ frontend_per_message => sub { sprintf 'front end %.1f us/message', $_[0] * 1e6 } ],
    [ postgres_per_message => sub { sprintf 'PostgreSQL %.1f us/message', $_[0] * 1e6 } ],
    [ server_per_message => sub { sprintf 'server %.1f us/message', $_[0] * 1e6 } ],
    [ commits_per_message => sub { $_[0] > 0 ? sprintf '%.1f messages/commit', 1 / $_[0] : () } ],
    [ wal_per_message => sub { sprintf 'WAL %.0f bytes/message', $_[0] } ],
    [ segments_per_commit => sub { sprintf '%.1f segments/commit', $_[0] } ],
    [ messages_per_segment => sub { sprintf '%.1f messages/segment', $_[0] } ],
    [ bytes_per_segment => sub { sprintf '%.0f bytes/segment', $_[0] } ],
    [ connections => sub { "$_[0] connections" } ],
    [ p50 => sub { "fdatasync p50 $_[0] us" } ],
    [ p99 => sub { "p99 $_[0] us" } ],
    [ share => sub { sprintf '%.2f %% of a core', 100 * $_[0] } ],
    [ memory => sub { sprintf '%.1f MiB', $_[0] / 1024 / 1024 } ],
);

sub describe
{
    my ($measured) = @_;
    return join ', ', map { defined $measured->{ $_->[0] } ? $_->[1]->($measured->{ $_->[0] }) : () } @columns;
}

sub with_unit
{
    my ($value, $unit) = @_;
    return sprintf '%.1f %%', 100 * $value if $unit eq '%';
    return sprintf $unit eq 'MiB' ? '%.0f %s' : '%.2f %s', $value, $unit;
}

sub median
{
    my @sorted = sort { $a <=> $b } @_;
    my $middle = int(@sorted / 2);
    return @sorted % 2 ? $sorted[$middle] : ($sorted[ $middle - 1 ] + $sorted[$middle]) / 2;
}

# --- running ----------------------------------------------------------------------------------

# The values that each round gives, their median and spread, and whether the target is met.
sub judge
{
    my ($rule, @rounds) = @_;
    my @values = sort { $a <=> $b } map { $rule->{value}->($_) } @rounds;
    my $median = median(@values);
    my %judged = (name => $rule->{name}, unit => $rule->{unit}, values => \@values, median => $median);
    for my $bound (grep { defined $rule->{$_} } qw(at_least at_most))
    {
        $judged{$bound} = $rule->{$bound};
        $judged{met} = ($bound eq 'at_least' ? $median >= $rule->{$bound} : $median <= $rule->{$bound}) ? 1 : 0;
    }
    return \%judged;
}

sub judged_text
{
    my ($judged) = @_;
    my $spread = join ' to ', map { with_unit($judged->{values}[$_], $judged->{unit}) } 0, -1;
    my $text = "$judged->{name}: " . with_unit($judged->{median}, $judged->{unit}) . " [$spread]";
    return $text unless defined $judged->{met};
    my $bound = defined $judged->{at_least} ? 'at least' : 'at most';
    return "$text, $bound " . with_unit($judged->{at_least} // $judged->{at_most}, $judged->{unit}) . ': '
      . ($judged->{met} ? 'met' : 'NOT met');
}

# Runs a case and keeps it; "head" are the pairs that describe the run.
sub run_case
{
    my ($case, $rounds, $head) = @_;
    print "\n== $case->{name}: $case->{title}\n   target: $case->{target}\n";
    $case->{prepare}->() if $case->{prepare};
    my @rounds;
    for my $round (1 .. $rounds)
    {
        my %measured;
        for my $side (@{ $case->{sides} })
        {
            my ($name, $measure) = @$side;
            $measured{$name} = $measure->($round, \%measured);
            print "round $round, $name: " . describe($measured{$name}) . "\n";
        }
        push @rounds, \%measured;
    }
    my @judged = map { judge($_, @rounds) } @{ $case->{judge} };
    print '   ' . judged_text($_) . "\n" for @judged;
    keep($case->{name},
        {
            title => $case->{title},
            target => $case->{target},
            sides => [ map { $_->[0] } @{ $case->{sides} } ],
            head => $head,
            rounds => \@rounds,
            judged => \@judged
        });
    return;
}

# --- keeping ----------------------------------------------------------------------------------

sub keep_in { ($kept) = @_; return; }

sub keep
{
    my ($name, $result) = @_;
    system('mkdir', '-p', $kept) == 0 or die "cannot make $kept\n";
    open my $file, '>', "$kept/$name.json" or die "$kept/$name.json: $!\n";
    print $file $json->encode($result);
    close $file or die "$kept/$name.json: $!\n";
    return;
}

sub kept
{
    my ($name) = @_;
    open my $file, '<', "$kept/$name.json" or return;
    local $/ = undef;
    return $json->decode(<$file>);
}

sub forget { unlink glob "$kept/*.json"; return; }

# --- RESULTS.md ---------------------------------------------------------------------------------

sub table_row
{
    my ($name, $result) = @_;
    my @cells = map { judged_text($_) =~ s/^(?:.*?: [^:]*?\])\K.*//sr } @{ $result->{judged} };
    my @met = map { $_->{met} } grep { defined $_->{met} } @{ $result->{judged} };
    my $verdict = !@met ? '' : (grep { !$_ } @met) ? '**no**' : 'yes';
    return "| $result->{title} | $result->{target} | " . join('; ', @cells) . " | $verdict | `bench/run $name` |\n";
}

# The medians of what one side measured.
sub side_row
{
    my ($name, $result) = @_;
    my @rounds = map { $_->{$name} } @{ $result->{rounds} };
    my %medians = map {
        my $member = $_->[0];
        my @values = grep { defined } map { $_->{$member} } @rounds;
        !@values ? () : ($member => ref $values[0] ? merge(@values) : median(@values));
    } @columns;
    return "| $name | " . describe(\%medians) . " |\n";
}

sub merge
{
    my (@histograms) = @_;
    return {
        map { my $member = $_; ($member => median(map { $_->{$member} } @histograms)) }
          keys %{ $histograms[0] }
    };
}

sub markdown
{
    my (@names) = @_;
    my @found = grep { kept($_) } @names;
    my %results = map { ($_ => kept($_)) } @found;
    return "no results: run a case first\n" unless @found;
    my @head = @{ $results{ $found[0] }{head} };
    my $text = "# Results\n\nWritten by `bench/run report` from the last run of each case; how to read it: "
      . "[README.md](README.md). A ratio is the median over the rounds, with the least and the greatest in "
      . "brackets.\n\n| | |\n| --- | --- |\n";
    while (my ($what, $value) = splice @head, 0, 2) { $text .= "| $what | $value |\n"; }
    $text .= "\n| case | target | measured | met | command |\n| --- | --- | --- | --- | --- |\n";
    $text .= table_row($_, $results{$_}) for @found;
    $text .= "\nNot run: " . join(', ', grep { !$results{$_} } @names) . ".\n" if @found < @names;
    for my $name (@found)
    {
        my %head = @{ $results{$name}{head} };
        $text .= "\n## $name\n\n$head{date}, commit $head{commit}, load before $head{'load before'}, "
          . "$head{measurement}.\n\n| side | medians over the rounds |\n| --- | --- |\n";
        $text .= side_row($_, $results{$name}) for @{ $results{$name}{sides} };
    }
    return $text;
}

1;
