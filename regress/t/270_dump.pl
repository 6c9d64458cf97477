# A dump that is restored elsewhere has everything: consumers continue where they were.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use PostgreSQL::Test::Utils;
use QueenTest;
use Test::More;

my $queen = QueenTest->new('dump');
my $node = $queen->node;
my $web = $queen->start_frontend;

sub items
{
    my ($partition, @ids) = @_;
    return map { { queue => 'shop.orders', partition => $partition, transactionId => $_, payload => { id => $_ } } } @ids;
}

sub statuses { return join ',', map { $_->{status} } @{ $_[0] }; }
sub ids { return join ',', map { $_->{transactionId} } @_; }

# Some of everything: options, offsets past zero, a lease, a dead letter, a subscription, a
# watermark, a deleted queue.
$web->post('/api/v1/configure', { queue => 'shop.orders', options => { leaseTime => 120, retryLimit => 0 } });
$web->push(items($_, 'a1', 'a2', 'a3')) for qw(north south);
my @first = $web->pop('shop.orders', partition => 'north', consumerGroup => 'billing', subscriptionMode => 'all');
$web->ack('completed', $first[0]);
$web->ack('failed', $first[1]);
my @leased = $web->pop('shop.orders', partition => 'south', consumerGroup => 'billing', subscriptionMode => 'all');
$web->pop('shop.orders', consumerGroup => 'newcomers', subscriptionMode => 'new');
$web->push(items('north', 'b1'));
$web->pop('shop.orders', consumerGroup => 'readers', subscriptionMode => 'all', partitions => 0, autoAck => 'true');
$web->pop('shop.orders', consumerGroup => 'readers');
$web->push({ queue => 'gone', payload => 1 });
is($web->request('DELETE', '/api/v1/resources/queues/gone')->{status}, 200, 'a queue is deleted');

sub rows
{
    my ($database) = @_;
    my @tables = split /\n/, $node->safe_psql($database,
        q{SELECT relname FROM pg_class WHERE relnamespace = 'queen'::regnamespace AND relkind IN ('r', 'p', 'S') ORDER BY 1});
    return { map { $_ => $node->safe_psql($database, "SELECT t FROM queen.$_ AS t ORDER BY t::text COLLATE \"C\"") } @tables };
}

sub dead_letters { return shift->get('/api/v1/dlq')->{json}; }

# The queue that was deleted is drained in the background.
QueenTest::wait_until(sub { $queen->sql(q{SELECT count(*) FROM queen.queues} ) == 1 }, 'the deleted queue is drained');
# From here on nothing changes by itself.
$queen->sql('ALTER SYSTEM SET queen.workers = off');
$node->reload;
QueenTest::wait_until(sub { $queen->sql(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'queen %'} ) <= 1 }, 'the workers are gone');
my $before = rows('postgres');
my $letters = dead_letters($web);
my $queue = $web->get('/api/v1/resources/queues/shop.orders')->{json};
is($web->stop, 0, 'the front end stops');

my $file = PostgreSQL::Test::Utils::tempdir . '/dump';
$node->command_ok([ 'pg_dump', '--format=custom', '--file', $file, $node->connstr('postgres') ], 'dump');
$node->safe_psql('postgres', 'CREATE DATABASE restored TEMPLATE template0');
$node->command_ok([ 'pg_restore', '--exit-on-error', '--dbname', $node->connstr('restored'), $file ], 'restore');

my $after = rows('restored');
is_deeply($after, $before, 'all tables hold the same rows');
cmp_ok(scalar(grep { $_ ne '' } values %$before), '>=', 7, 'in seven tables at least');

my $other = $queen->start_frontend(env => { PGDATABASE => 'restored' });
is_deeply($other->get('/api/v1/resources/queues/shop.orders')->{json}, $queue, 'the queue is the same');
is_deeply(dead_letters($other), $letters, 'the dead letters are the same');
is($letters->{messages}[0]{transactionId}, 'a2', 'and there is one');

is(statuses($other->push(items('north', 'a1', 'c1'))), 'duplicate,queued', 'deduplication goes on');
is(ids($other->pop('shop.orders', partition => 'north', consumerGroup => 'billing', autoAck => 'true')), 'a3,b1,c1',
    'a consumer continues where it was');
is($other->get('/api/v1/pop/queue/shop.orders?consumerGroup=billing')->{status}, 204, 'the lease is still live');
is($other->ack('completed', $leased[-1])->[0]{success}, JSON::PP::true, 'and its holder acknowledges');
is(ids($other->pop('shop.orders', consumerGroup => 'newcomers', partitions => 0)), 'b1,c1', 'a group of mode new continues');
is(ids($other->pop('shop.orders', consumerGroup => 'readers', partitions => 0)), 'c1', 'a group that had read all gets the rest');
is(statuses($other->push({ queue => 'fresh', payload => 1 })), 'queued', 'a new queue');
$queen->finish;
