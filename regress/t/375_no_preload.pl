# Without the preload there are no workers and no counters, and everything else.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use PostgreSQL::Test::Cluster;
use QueenTest;
use QueenWorkers;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('no_preload');
$node->init(extra => [ '--encoding=UTF8', '--locale=C.UTF-8' ]);
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION queen');
my $queen = bless { node => $node, frontends => [] }, 'QueenTest';
install_helpers($queen, 'postgres');

is($queen->sql(q{SELECT status FROM test.push('q', 'p', 'a', 'b')}), 'queued', 'push');
is($queen->sql(q{SELECT first, last FROM test.pop('q', worker => 1)}), '0|1', 'pop');
is($queen->sql(q{SELECT success FROM test.ack('q', 'p', 1, '{a}')}), 't', 'ack');
is($queen->sql('SELECT renewed FROM queen.log_renew(test.tenant(), test.worker(1), 60, NULL)'), 1, 'a renewal searches for its lease');
is($queen->sql('SELECT lag FROM queen.pg_stat_queen_consumers'), 1, 'the consumers can be seen');
$queen->sql(q{SELECT test.expire('q'); CALL queen.maintain()});
is($queen->sql('SELECT worker_id IS NULL FROM queen.log_consumers'), 't', 'maintenance by hand releases the lease');

is($queen->sql('SELECT queen.stat_preloaded()'), 'f', 'the extension knows');
for my $query (
    'SELECT * FROM queen.pg_stat_queen_workers',
    'SELECT * FROM queen.pg_stat_queen_queues',
    'SELECT * FROM queen.pg_stat_queen_progress_retention',
    'SELECT queen.pg_stat_queen_reset()')
{
    my (undef, undef, $error) = $node->psql('postgres', "LOAD 'queen'; $query", extra_params => [ '-v', 'VERBOSITY=verbose' ]);
    like($error, qr/ERROR:  55000: .*queen is not preloaded\nHINT:  Add "queen" to shared_preload_libraries/, "says so: $query");
}
my (undef, undef, $error) = $node->psql('postgres', "LOAD 'queen'; SHOW queen.max_tracked_queues");
like($error, qr/unrecognized configuration parameter/, 'what sizes shared memory cannot be set');
is($queen->sql(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'queen %'}), 0, 'no worker runs');

# The schema may be there before the extension, but not be another's.
$node->safe_psql('postgres', 'CREATE ROLE other; CREATE DATABASE prepared');
$node->safe_psql('prepared', 'CREATE SCHEMA queen AUTHORIZATION other');
(undef, undef, $error) = $node->psql('prepared', 'CREATE EXTENSION queen', extra_params => [ '-v', 'VERBOSITY=verbose' ]);
like($error, qr/ERROR:  42501: schema "queen" belongs to a role that is no superuser/, 'no extension in a schema of others');
$node->safe_psql('prepared', 'ALTER SCHEMA queen OWNER TO CURRENT_USER; CREATE EXTENSION queen');
is($node->safe_psql('prepared', q{SELECT (queen.push('q', '{}')).status}), 'queued', 'in an own one it works');
$queen->finish;
