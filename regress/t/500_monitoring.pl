# The queries of docs/monitoring.md and of the files for Prometheus and Grafana run as
# a member of pg_monitor, and their metrics are those that the files name.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use JSON::PP;
use PostgreSQL::Test::Utils;
use QueenTest;
use Test::More;

my $docs = "$FindBin::Bin/../../docs";
my $queen = QueenTest->new('monitoring');
my $node = $queen->node;
my $web = $queen->start_frontend;
$queen->sql('CREATE ROLE watcher LOGIN IN ROLE pg_monitor');
$web->push({ queue => 'shop.orders', payload => 1 }, { queue => 'shop.orders', payload => 2 });
$web->pop('shop.orders', consumerGroup => 'billing', subscriptionMode => 'all', batch => 1);

# Columns and rows of a query.
sub ask
{
    my ($name, $query) = @_;
    my ($status, $output, $errors) = $node->psql('postgres', $query,
        extra_params => [ '--no-align', '--field-separator=|', '--pset=tuples_only=off', '--pset=footer=off', '--username=watcher' ]);
    is($errors, '', "$name: no error");
    my ($head, @rows) = split /\n/, $output;
    return ([ split /\|/, $head // '' ], @rows);
}

for my $query (slurp_file("$docs/monitoring.md") =~ /^```sql\n(.*?)^```$/gms)
{
    my ($columns) = ask('documented', $query);
    ok(@$columns > 1, "columns @$columns");
}

my (%metrics, %answered);
my $queries = slurp_file("$docs/monitoring/postgres_exporter.yaml");
while ($queries =~ /^(\w+):\n  query: \|\n(.*?)^(?:  cache_seconds: \d+\n)?  metrics:\n(.*?)(?=^\w|\z)/gms)
{
    my ($name, $query, $list) = ($1, $2, $3);
    my @named = $list =~ /^    - (\w+): \{usage: "(?:LABEL|GAUGE|COUNTER)", description: "[^"]+"\}$/gm;
    my ($columns, @rows) = ask($name, $query);
    is_deeply($columns, \@named, "$name: columns and metrics agree");
    $metrics{"${name}_$_"} = 1 for @named;
    $answered{$name} = @rows;
}
is_deeply([ sort keys %answered ], [qw(queen_consumer queen_queue queen_worker)], 'three queries');
is($answered{queen_consumer}, 1, 'one group');
is($answered{queen_worker}, 5, 'five workers');

my $dashboard = decode_json(slurp_file("$docs/monitoring/grafana.json"));
for my $panel (@{ $dashboard->{panels} })
{
    my @used = map { $_->{expr} =~ /\b(queen_\w+)/g } @{ $panel->{targets} };
    ok(@used > 0 && !grep({ !$metrics{$_} } @used), "panel \"$panel->{title}\"") or diag "@used";
}

$queen->finish;
