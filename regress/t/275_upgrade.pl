# pg_upgrade takes everything along, and no worker writes to the clusters meanwhile.
use strict;
use warnings;
use File::Basename;
use FindBin;
use lib $FindBin::Bin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueenTest;
use Test::More;

my $queen = QueenTest->new('old', conf => "log_min_messages = debug1\n");
my $old = $queen->node;
my $web = $queen->start_frontend;
$web->push(map { { queue => 'q', partition => 'p', transactionId => $_, payload => {} } } 'a', 'b', 'c');
my @taken = $web->pop('q', partition => 'p', consumerGroup => 'g', subscriptionMode => 'all', batch => 2);
$web->ack('completed', $taken[0]);
is($web->stop, 0, 'the front end stops');
like(slurp_file($old->logfile), qr/starting background worker process "queen launcher"/, 'the log shows who is started');
$old->stop;

my $new = PostgreSQL::Test::Cluster->new('new');
$new->init(extra => [ '--encoding=UTF8', '--locale=C.UTF-8' ]);
$new->append_conf('postgresql.conf', "shared_preload_libraries = 'queen'\nlog_min_messages = debug1\n");
my $bin = $old->config_data('--bindir');
chdir dirname($new->data_dir);
command_ok(
    [
        "$bin/pg_upgrade", '--no-sync', '--retain', '--old-bindir', $bin, '--new-bindir', $bin,
        '--old-datadir', $old->data_dir, '--new-datadir', $new->data_dir,
        '--old-port', $old->port, '--new-port', $new->port, '--socketdir', $new->host
    ], 'pg_upgrade');
my @logs = glob($new->data_dir . '/pg_upgrade_output.d/*/log/pg_upgrade_server.log');
is(scalar @logs, 1, 'it keeps the log of its servers');
my $log = slurp_file($logs[0]);
like($log, qr/database system is ready/, 'which were started');
unlike($log, qr/queen launcher/, 'without workers');

my $upgraded = bless { node => $new, frontends => [] }, 'QueenTest';
$new->start;
my $other = $upgraded->start_frontend;
is($other->ack('completed', $taken[1])->[0]{success}, JSON::PP::true, 'a lease goes on');
is(join(',', map { $_->{transactionId} } $other->pop('q', partition => 'p', consumerGroup => 'g')), 'c', 'and so does the group');
is($other->push({ queue => 'q', partition => 'p', transactionId => 'a', payload => {} })->[0]{status}, 'duplicate', 'and deduplication');
$upgraded->finish;
