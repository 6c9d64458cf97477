# One request with 10,000 queues, each of which it creates: nothing is left half done when the front
# end is killed in the middle, and a transaction of that size is all or nothing.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use JSON::PP ();
use QueenHistory;
use QueenTest 'wait_until';
use Test::More;

my $n = 10_000;
my $queen = QueenTest->new('manyqueues');
my $web = $queen->start_frontend(args => [ '--threads', 1 ]);

sub items { my ($prefix) = @_; return map { { queue => "$prefix.$_", transactionId => "$_", payload => $_ } } 1 .. $n; }
sub transact { return $web->post('/api/v1/transaction', { operations => [ { type => 'push', items => [@_] } ] }); }
sub queues { my ($prefix) = @_; return $queen->sql("SELECT count(*) FROM queen.queues WHERE name ^@ '$prefix.'"); }

# Messages per queue, over all queues of the prefix: "1" when each has one.
sub messages
{
    my ($prefix) = @_;
    return $queen->sql(
        "SELECT string_agg(DISTINCT m, ' ')
           FROM (SELECT coalesce(sum(p.last_offset + 1), 0)::text AS m
                   FROM queen.queues AS q LEFT JOIN queen.log_partitions AS p ON p.queue_id = q.id
                  WHERE q.name ^@ '$prefix.' GROUP BY q.id) AS s");
}

# The statuses of a large answer, and how often.
sub statuses
{
    my ($response) = @_;
    my %times;
    $times{$1}++ while $response->{body} =~ /"status":"(\w+)"/g;
    return join ' ', map { "$times{$_} $_" } sort keys %times;
}

{
    # Somebody is creating one of the queues, and does not come to an end: neither does the push.
    my $holder = $queen->node->background_psql('postgres');
    $holder->query_safe("BEGIN; SELECT queen.log_provision('{00000000-0000-0000-0000-000000000001}', '{killed.9000}', '{p}')");
    my $connection = $web->connect;
    $connection->send('POST', '/api/v1/push', { items => [ items('killed') ] });
    wait_until(sub { queues('killed') > 0 }, 'the push has begun');
    $web->kill9;
    is($connection->receive, undef, 'killed in the middle, it is not answered');
    $holder->query_safe('ROLLBACK');
    $holder->quit;
    $web->start;
    $web->wait_healthy;
    my $stored = $queen->sql('SELECT count(*) FROM queen.log_segments');
    my $response = $web->post('/api/v1/push', { items => [ items('killed') ] });
    is($response->{status}, 201, 'the same push is repeated');
    my %times = reverse split / /, statuses($response);
    is(($times{queued} // 0) + ($times{duplicate} // 0), $n, 'every message is stored');
    cmp_ok($times{duplicate} // 0, '>=', $stored, 'what was stored before is known');
    is(queues('killed') . ' ' . messages('killed'), "$n 1", 'once, each in its queue');
}

{
    my $response = transact(items('bundle'), { queue => 'killed.1', transactionId => "1" });
    is($response->{status}, 400, 'one more than a transaction takes');
    my @items = items('bundle');
    pop @items;
    $response = transact(@items, { queue => 'killed.1', transactionId => "1" });
    is("$response->{json}{success} $response->{json}{reason}", '0 duplicate', 'a transaction with a duplicate is refused');
    is(queues('bundle'), 0, 'and none of its queues exists');
    $response = transact(items('bundle'));
    is($response->{status} . ' ' . ($response->{body} =~ /"success":true/), '200 1', 'a transaction creates as many');
    is(queues('bundle') . ' ' . messages('bundle'), "$n 1", 'all of them');
}

# What lists queues lists that many.
for my $path (qw(/api/v1/resources/queues /api/v1/resources/overview /api/v1/status /metrics/prometheus))
{
    is($web->get($path)->{status}, 200, "GET $path");
}
is($queen->sql('SELECT sum(push_messages) FROM queen.pg_stat_queen_queues'), 2 * $n, 'the statistics count all');

QueenHistory::check_tables($queen, 'at the end');
$queen->finish;
