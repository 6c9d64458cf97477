# A standby has no workers until it is promoted.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use PostgreSQL::Test::Cluster;
use QueenTest 'wait_until';
use QueenWorkers;
use Test::More;

my $queen = QueenWorkers::start('primary', init => { allows_streaming => 1 });
my $primary = $queen->node;
wait_for_workers($queen);
$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;
$queen->sql(q{SELECT test.push('q', 'p', 'a')});
$primary->wait_for_catchup($standby);

is($standby->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'queen %'}), 0, 'no worker on a standby');
is($standby->safe_psql('postgres', q{SELECT count(*) FROM queen.pg_stat_queen_workers}), 0, 'and none in the view');
is($standby->safe_psql('postgres', q{SELECT queue, pushes FROM queen.pg_stat_queen_queues}), 'q|0', 'it counts for itself');
is($standby->safe_psql('postgres', q{SELECT count(*) FROM queen.pg_stat_queen_consumers}), 0, 'its consumers can be seen');

$primary->stop('immediate');
$standby->promote;
my $promoted = bless { node => $standby, frontends => [] }, 'QueenTest';
wait_for_workers($promoted);
pass('the workers start after promotion');
is($promoted->sql(q{SELECT status FROM test.push('q', 'p', 'a')}), 'duplicate', 'nothing is lost');
is($promoted->sql(q{SELECT status FROM test.push('q', 'p', 'b')}), 'queued', 'and the queue goes on');
$promoted->finish;
