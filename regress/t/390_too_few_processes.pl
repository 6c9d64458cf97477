# Fewer worker processes than the workers need: said once, and the work can be done by hand.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use QueenTest 'wait_until';
use QueenWorkers;
use Test::More;

# One for the launcher of logical replication, one for that of queen.
my $queen = QueenWorkers::start('too_few', conf => "max_worker_processes = 4\n");
wait_for_log($queen, qr/WARNING:  queen cannot start all of its workers: too few worker processes/);
like(PostgreSQL::Test::Utils::slurp_file($queen->node->logfile), qr/HINT:  Set max_worker_processes to at least 6 more/, 'the log says how many are needed');
is($queen->sql(q{SELECT status FROM test.push('q', 'p', 'a')}), 'queued', 'push');
$queen->sql(q{SELECT * FROM test.pop('q', worker => 1); SELECT test.expire('q'); CALL queen.maintain()});
is($queen->sql('SELECT worker_id IS NULL FROM queen.log_consumers'), 't', 'the work can be done by hand');

# A worker that ends makes room for another: the launcher goes on trying.
my $tries = statistics($queen, 'retention', 'cycles');
wait_until(sub { statistics($queen, 'retention', 'cycles') > $tries }, 'the workers that run go on');
is(count_in_log($queen, qr/too few worker processes/), 1, 'it is said once');
$queen->finish;
