# Failover under load: the primary dies, the standby is promoted, front ends move over. With a
# synchronous standby nothing that was acknowledged is missing; with an asynchronous one each log on it
# is a prefix, and goes on.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use PostgreSQL::Test::Cluster;
use QueenHistory;
use QueenTest 'wait_until';
use Test::More;

my $queen = QueenTest->new('primary', init => { allows_streaming => 1 }, conf => "max_connections = 60\n");
my $primary = $queen->node;
$primary->backup('base');

# A standby of the primary, with the settings given.
sub standby
{
    my ($name, $conf) = @_;
    my $standby = PostgreSQL::Test::Cluster->new($name);
    $standby->init_from_backup($primary, 'base', has_streaming => 1);
    $standby->append_conf('postgresql.conf', $conf) if $conf;
    $standby->start;
    return $standby;
}

# A front end that knows both.
sub frontend_of
{
    my (@nodes) = @_;
    return $queen->start_frontend(args => [ '--threads', 2, '--dsn', 'user=queen_web dbname=postgres host=' . join(',', map { $_->host } @nodes)
        . ' port=' . join(',', map { $_->port } @nodes) ]);
}

sub stored { my ($node) = @_; return $node->safe_psql('postgres', 'SELECT coalesce(sum(last_offset + 1), 0) FROM queen.log_partitions'); }

# The logs of a node as transaction ids: partition => [ ids by offset ].
sub logs { my ($node, $queue) = @_; return QueenHistory::log({ queen => bless({ node => $node }, 'QueenTest'), queue => $queue }); }

my %consumers = (consumers => 8, groups => 'billing,shipping');

# --- synchronous: twice, there and back to a new standby -----------------------------------------

{
    my $standby = standby('synchronous');
    $primary->append_conf('postgresql.conf', "synchronous_standby_names = 'synchronous'\n");
    $primary->reload;
    wait_until(sub { $queen->sql('SELECT count(*) FROM pg_stat_replication WHERE sync_state = \'sync\'') == 1 }, 'the standby is synchronous');
    my $web = frontend_of($primary, $standby);
    my $load = QueenHistory::start_endless($queen, %consumers, ports => [ $web->port ], queue => 'synchronous');
    wait_until(sub { stored($primary) > 1000 }, 'the load runs');
    $primary->stop('immediate');
    $standby->promote;
    my $before = stored($standby);
    wait_until(sub { stored($standby) > $before + 500 }, 'the load goes on at the new primary');
    $load->stop;
    cmp_ok($load->totals->{unknown} + $load->totals->{refused}, '>', 0, 'requests were in flight when the primary died');

    my $promoted = $load->{queen} = bless { node => $standby, frontends => [] }, 'QueenTest';
    $load->drain(%consumers, ports => [ $web->port ], pop_partitions => 6, pop_timeout => 3000);
    $load->check_log('a synchronous standby');
    $load->check_groups('a synchronous standby');
    $load->check_drained('a synchronous standby', 'billing', 'shipping');
    QueenHistory::check_tables($promoted, 'the new primary');
    is($web->stop, 0, 'the front end stops');
    $standby->stop;
}

# --- asynchronous: the standby stays behind ------------------------------------------------------

$primary->append_conf('postgresql.conf', "synchronous_standby_names = ''\n");
$primary->start;
{
    my $standby = standby('asynchronous');
    my $web = frontend_of($primary, $standby);
    my %load = (producers => 8, partitions => 4, roam => 1, batch => 3, count => 60);
    my $had = QueenHistory::run($queen, %load, ports => [ $web->port ], queue => 'lagging', prefix => 'had');
    my @leased = $web->pop('lagging', consumerGroup => 'g', subscriptionMode => 'all', partition => 'p0', leaseSeconds => 3600, batch => 10);
    $web->ack('completed', @leased[ 0 .. 4 ]);
    $primary->wait_for_catchup($standby);

    # From here on it hears nothing.
    $standby->append_conf('postgresql.conf', "primary_conninfo = ''\n");
    $standby->reload;
    wait_until(sub { $standby->safe_psql('postgres', 'SELECT count(*) FROM pg_stat_wal_receiver') == 0 }, 'the standby is cut off');
    my $lost = QueenHistory::run($queen, %load, ports => [ $web->port ], queue => 'lagging', prefix => 'lost');
    is($lost->totals->{pushed}, 8 * 60 * 3, 'messages that it does not have');
    $web->ack('completed', @leased[ 5 .. 9 ]);
    my $whole = logs($primary, 'lagging');
    $primary->stop('immediate');
    $standby->promote;

    my $prefix = logs($standby, 'lagging');
    is_deeply($prefix, { map { my $p = $_; ($p => [ @{ $whole->{$p} }[ 0 .. $#{ $prefix->{$p} } ] ]) } keys %$whole }, 'each log is a prefix');
    is(scalar(grep { /^lost/ } map { @$_ } values %$prefix), 0, 'without what it did not hear of');
    $had->{queen} = bless { node => $standby, frontends => [] }, 'QueenTest';
    $had->check_log('what the standby had');

    wait_until(sub { $web->get('/health')->{status} == 200 }, 'the front end has moved over');
    my @again = map { { queue => 'lagging', partition => 'p0', transactionId => $_, payload => {} } } 'again', $prefix->{p0}[0];
    is(join(' ', map { $_->{status} } @{ $web->push(@again) }), 'queued duplicate', 'the log goes on, with the ids that it knows');
    is(logs($standby, 'lagging')->{p0}[-1], 'again', 'at its end');
    is($web->ack('completed', @leased[ 5 .. 9 ])->[-1]{success}, JSON::PP::true, 'the lease that it heard of is honoured');
    my ($next) = $web->pop('lagging', consumerGroup => 'g', partition => 'p0', batch => 1);
    is($next->{transactionId}, $prefix->{p0}[10], 'and the group continues behind it');
    QueenHistory::check_tables($had->{queen}, 'the new primary');
    is($web->stop, 0, 'the front end stops');
    $standby->stop;
}

$primary->start;
$queen->finish;
