# Two front ends, several groups, consumers that fail, send back, stop half way or vanish: the
# history of all that agrees with the rules.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use QueenHistory;
use QueenTest;
use Test::More;
use Time::HiRes qw(sleep time);

my $seconds = 25;
my @unruly = qw(billing shipping audit);
my $queen = QueenTest->new('history');
my @ports = map { $queen->start_frontend(args => [ '--threads', 2 ])->port } 1 .. 2;
my $web = $queen->{frontends}[0];
$web->post('/api/v1/configure', { queue => 'history', options => { retryLimit => 1 } });

my %common = (ports => \@ports, queue => 'history', seconds => $seconds);
my $load = QueenHistory::start(
    $queen, %common,
    producers => 12,
    partitions => 8,
    roam => 1,
    batch => 2,
    repeat => 5,
    consumers => 12,
    groups => join(',', @unruly),
    pop_batch => 30,
    pop_partitions => 2,
    lease => 2,
    fail => 10,
    retry => 5,
    partial => 15,
    abandon => 5);
my $steady = QueenHistory::start($queen, %common, consumers => 3, groups => 'steady', pop_batch => 100);

# Properties V-50 and V-51, watched from the side.
my (%cursors, @errors);
my $samples = 0;
for (my $end = time + $seconds; time < $end; sleep 0.1)
{
    for (split /\n/, $queen->sql('SELECT partition_id, consumer_group, committed, total_consumed FROM queen.log_consumers'))
    {
        my ($partition, $group, $committed, $total) = split /\|/;
        my $before = $cursors{"$partition $group"} // { committed => -1, total => 0 };
        push @errors, "$partition $group: $before->{committed} to $committed" if $committed < $before->{committed};
        push @errors, "$partition $group: counts $total at $committed" if $total - $before->{total} != $committed - $before->{committed};
        $cursors{"$partition $group"} = { committed => $committed, total => $total };
        $samples++;
    }
}
is_deeply(\@errors, [], 'V-50, V-51: cursors only go forward, and count what they pass');
cmp_ok($samples, '>', 100, 'they were looked at often');
$_->finish for $load, $steady;

my %drain = (ports => \@ports, consumers => 8, pop_partitions => 8, pop_timeout => 5000);
$load->drain(%drain, groups => join(',', @unruly));
$steady->drain(%drain, groups => 'steady');
$load->check_log('two front ends');
$load->check_groups('unruly groups');
$load->check_drained('unruly groups', @unruly);
$steady->check_groups('steady group');
$steady->check_drained('steady group', 'steady');
$steady->check_once('V-01');

# Dead letters are messages that their group failed, with their payload.
my %failed = map { $_->{last} eq 'failed' ? ("$_->{group} $_->{ids}[-1]" => 1) : () } $load->entries('ack');
my @letters = split /\n/, $queen->sql('SELECT consumer_group, transaction_id, retry_count, length(payload) > 10 FROM queen.log_dlq');
cmp_ok(scalar @letters, '>', 0, 'there are dead letters');
is(scalar(grep { my ($group, $id, $retries, $payload) = split /\|/; !$failed{"$group $id"} || $retries != 1 || $payload ne 't' } @letters),
    0, 'dead letters were failed, retried as often as configured, and are complete');
is($queen->sql('SELECT count(*) FROM (SELECT DISTINCT consumer_group, transaction_id FROM queen.log_dlq) AS d'),
    scalar @letters, 'no message is a dead letter twice');

QueenHistory::check_tables($queen, 'at the end');
$queen->finish;
