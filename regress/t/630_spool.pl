# The spool: pushes that wait on disk, for an outage or for maintenance, and are stored later, once, in order.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use JSON::PP ();
use PostgreSQL::Test::Utils;
use QueenHistory;
use QueenTest qw(is_error wait_until raw_payloads);
use Test::More;

my $queen = QueenTest->new('spool');
my $node = $queen->node;
my $dir = PostgreSQL::Test::Utils::tempdir . '/deep/spool';
my $key = '0123456789abcdef' x 4;
my ($true, $false) = (JSON::PP::true, JSON::PP::false);
my $web = $queen->start_frontend(env => { FILE_BUFFER_DIR => $dir }, args => [ '--threads', 2 ]);

sub push_to { my ($queue, $partition, @ids) = @_; return $web->post('/api/v1/push', { items => [ map { { queue => $queue, partition => $partition, transactionId => $_, payload => { id => $_ } } } @ids ] }); }
sub statuses { my ($response) = @_; return join ' ', $response->{status}, map { $_->{status} } @{ $response->{json} }; }
sub maintenance { my ($on, $mode, $server) = @_; return ($server // $web)->post('/api/v1/system/maintenance' . ($mode // ''), { enabled => $on }); }
sub pending { return $web->get('/api/v1/status/buffers')->{json}{pending}; }
sub wait_stored { my ($what) = @_; wait_until(sub { pending() == 0 }, "the spool is empty $what"); pass("the spool is empty $what"); return; }
sub log_of
{
    my ($queue) = @_;
    return $queen->sql(qq{
        SELECT coalesce(string_agg(p.name || ':' || f.transaction_id, ' ' ORDER BY p.name, s.base_offset, i), '')
          FROM queen.log_segments AS s
          JOIN queen.log_partitions AS p ON p.id = s.partition_id
          JOIN queen.queues AS q ON q.id = p.queue_id
         CROSS JOIN generate_series(0, (s.end_offset - s.base_offset)::int) AS i
         CROSS JOIN queen.log_frame(s.blob, i) AS f
         WHERE q.name = '$queue'});
}
sub files { opendir(my $d, $dir) or die "$dir: $!"; return sort grep { /\.spool$/ } readdir $d; }
sub stop_database { $node->stop('fast'); wait_until(sub { $web->get('/health')->{status} == 503 }, 'the front end has noticed'); return; }
sub start_database { $node->start; wait_until(sub { $web->get('/health')->{status} == 200 }, 'the front end has noticed'); return; }

# The modes and what shows them.
{
    my $state = $web->get('/api/v1/system/maintenance')->{json};
    is_deeply(
        $state,
        {
            maintenanceMode => $false, popMaintenanceMode => $false, bufferedMessages => 0, bufferHealthy => $true,
            bufferStats => { pendingCount => 0, failedCount => 0, dbHealthy => $true,
                failedFiles => { count => 0, totalBytes => 0, totalMB => '0', failoverCount => 0, qos0Count => 0 } }
        },
        'no maintenance');
    for my $body ('', '{}', '[]', '{"enabled":1}', '{"enabled":"true"}', '{"enabled":null}', '{"enabled":true')
    {
        is_error($web->post('/api/v1/system/maintenance', $body), 400, 'enabled must be true or false', "refused: $body");
    }
    my $buffers = $web->get('/api/v1/status/buffers')->{json};
    like(delete $buffers->{worker}, qr/^[01]$/, 'the thread that answers');
    is_deeply($buffers, { pending => 0, failed => 0, dbHealthy => $true }, 'the buffers');
    is($web->get('/api/v1/system/shared-state')->{json}{maintenance_mode}, $false, 'the shared state');
    is_deeply($web->post('/internal/api/notify', { queue => 'q' })->{json}, { status => 'ok' }, 'a notification');
    is_error($web->post('/internal/api/notify', {}), 400, 'queue is required', 'needs a queue');
    is($web->get("/internal/api/$_/stats")->{status}, 200, $_) for qw(shared-state inter-instance);
    is(sprintf('%04o', (stat $dir)[2] & 07777), '0700', 'the directory is ours alone');
}

# Push maintenance: pushes are buffered, in order behind each other, and stored when it is over.
{
    is(statuses(push_to('m', 'a', 'm1')), '201 queued', 'before');
    my $answer = maintenance($true)->{json};
    is_deeply([ @$answer{qw(maintenanceMode bufferedMessages bufferHealthy)} ], [ $true, 0, $true ], 'push maintenance');
    my $response = push_to('m', 'a', 'm2', 'm3', 'm3');
    is(statuses($response), '201 buffered buffered buffered', 'pushes are buffered');
    is($response->{json}[2]{message_id}, $response->{json}[1]{message_id}, 'a repeated one shares the fate of the first');
    my $reserved = $response->{json}[0]{message_id};
    is(statuses(push_to('m', 'b', 'm4')), '201 buffered', 'another');
    is(pending(), 3, 'the buffers count them');
    my $metrics = $web->get('/metrics/prometheus')->{body};
    like($metrics, qr/^$_$/m, 'and so do the metrics') for 'queen_file_buffer_pending 3', 'queen_maintenance_mode_enabled 1';
    is($queen->sql(q{SELECT value FROM queen.system_state WHERE key = 'maintenance_mode'}), '{"enabled": true}', 'the database knows');
    is(log_of('m'), 'a:m1', 'nothing of them is stored');
    is((raw_payloads($web->get('/api/v1/pop/queue/m?autoAck=true')->{body}))[0], '{"id":"m1"}', 'pops go on');
    is(scalar(my @files = files()), 1, 'they are in a file');
    is(sprintf('%04o', (stat "$dir/" . (files())[0])[2] & 07777), '0600', 'which nobody else can read');
    for my $path ('/api/v1/dlq/00000000-0000-4000-8000-000000000000/replay', '/api/v1/messages/00000000-0000-4000-8000-000000000000/x/retry')
    {
        my $refused = $web->post($path, {});
        is("$refused->{status} $refused->{json}{result}", '503 maintenance', 'a dead letter stays where it is');
    }
    is(maintenance($false)->{json}{maintenanceMode}, $false, 'it is over');
    wait_stored('after maintenance');
    is(log_of('m'), 'a:m1 a:m2 a:m3 b:m4', 'all is stored, once, in order');
    is($queen->sql(qq{SELECT count(*) FROM queen.log_segments AS s CROSS JOIN generate_series(0, (s.end_offset - s.base_offset)::int) AS i
                        CROSS JOIN queen.log_frame(s.blob, i) AS f WHERE f.message_id = '$reserved'}), 1, 'under the id that was reserved');
    is_deeply([ files() ], [], 'no file is left');
}

# Pop maintenance: pops get nothing, parked ones included.
{
    push_to('pm', 'a', 'p1');
    my $parked = $web->connect;
    $parked->send('GET', '/api/v1/pop/queue/none?wait=true&timeout=60000');
    wait_until(sub { $web->get('/metrics')->{json}{queen}{parkedPops} > 0 }, 'a pop is parked');
    is(maintenance($true, '/pop')->{json}{popMaintenanceMode}, $true, 'pop maintenance');
    is($parked->receive->{status}, 204, 'a parked pop is sent home');
    is($web->get('/api/v1/pop/queue/pm?wait=true&timeout=60000')->{status}, 204, 'a pop gets nothing, at once');
    is(statuses(push_to('pm', 'a', 'p2')), '201 queued', 'pushes go on');
    is($web->get('/api/v1/system/maintenance/pop')->{json}{popMaintenanceMode}, $true, 'as it says');
    is(maintenance($false, '/pop')->{json}{popMaintenanceMode}, $false, 'it is over');
    is($web->get('/api/v1/pop/queue/pm?autoAck=true&batch=5')->{json}{messages}[1]{transactionId}, 'p2', 'pops work');
}

# An outage: buffered in the meantime, in order across it, with the same deduplication.
{
    push_to('o', 'a', 'o1', 'o2');
    stop_database();
    is(statuses(push_to('o', 'a', 'o3', 'o2')), '201 buffered buffered', 'buffered during an outage');
    is(statuses(push_to('o', 'b', 'o5')), '201 buffered', 'another partition');
    is($web->get('/api/v1/pop/queue/o')->{status}, 503, 'a pop cannot be served');
    is($web->get('/api/v1/status/buffers')->{json}{dbHealthy}, $false, 'the buffers know');
    start_database();
    wait_stored('after the outage');
    is(statuses(push_to('o', 'a', 'o6')), '201 queued', 'pushes go straight again');
    is(log_of('o'), 'a:o1 a:o2 a:o3 a:o6 b:o5', 'order is kept, and the duplicate was found');
}

# Killed while it holds messages: the next process stores them, and a torn end does no harm.
{
    stop_database();
    is(statuses(push_to('k', 'a', map { "k$_" } 1 .. 3)), '201 buffered buffered buffered', 'buffered');
    kill 'KILL', $web->pid;
    wait_until(sub { !$web->running }, 'the front end is gone');
    my ($file) = files();
    append_to_file("$dir/$file", "\x40\0\0\0torn");
    my $size = -s "$dir/$file";
    $web->start;
    wait_until(sub { eval { $web->get('/metrics')->{status} } }, 'it is there again');
    is(pending(), 3, 'what was buffered is known');
    cmp_ok(-s "$dir/$file", '<', $size, 'the torn end was cut off');
    is(statuses(push_to('k', 'a', 'k4')), '201 buffered', 'more goes behind it');
    start_database();
    wait_stored('after a crash');
    is(log_of('k'), 'a:k1 a:k2 a:k3 a:k4', 'all is there, in order');
    like($web->log, qr/the end of a spool file is torn/, 'the log says so');
    is(slurp_file("$dir/$file.torn"), "\x40\0\0\0torn", 'and it was set aside');
}

# Stored, but the process ended before it noted that: even a queue that deduplicates nothing has it once.
{
    $web->post('/api/v1/configure', { queue => 'w', options => { dedupWindowSeconds => 0 } });
    maintenance($true);
    is(statuses(push_to('w', 'a', 'same')), '201 buffered', 'buffered');
    is(statuses(push_to('w', 'a', 'same')), '201 buffered', 'another message of the same transaction id');
    my ($file) = files();
    my $copy = slurp_file("$dir/$file");
    maintenance($false);
    wait_stored('the first time');
    is(log_of('w'), 'a:same a:same', 'both are messages');
    $web->stop;
    append_to_file("$dir/$file", $copy);
    $web->start;
    $web->wait_healthy;
    wait_stored('the second time');
    is(log_of('w'), 'a:same a:same', 'the same messages are not stored again');
}

# A file that cannot be read may hold messages: it is left alone, and the spool with it.
{
    maintenance($true);
    is(statuses(push_to('u', 'a', 'u1')), '201 buffered', 'buffered');
    my ($file) = files();
    kill 'KILL', $web->pid;
    wait_until(sub { !$web->running }, 'the front end is gone');
    my $good = slurp_file("$dir/$file");
    open(my $handle, '+<', "$dir/$file") or die;
    print $handle 'XXXXXXXX';
    close $handle;
    $web->start;
    wait_until(sub { $web->log =~ /a spool file cannot be read/ }, 'the log says so');
    $web->wait_healthy;
    is(-s "$dir/$file", length $good, 'the file is as it was');
    is($web->stop, 0, 'it stops');
    open($handle, '+<', "$dir/$file") or die;
    print $handle substr $good, 0, 8;
    close $handle;
    append_to_file("$dir/0000000000001-00000000.spool", '');
    $web->start;
    $web->wait_healthy;
    is(pending(), 1, 'mended, it is known again');
    is_deeply([ files() ], [$file], 'an empty one is removed');

    # What fails for reasons that pass is tried again.
    $queen->sql('ALTER FUNCTION queen.log_push_spooled RENAME TO hidden');
    maintenance($false);
    wait_until(sub { $queen->node->log_contains('function queen.log_push_spooled') || $web->get('/metrics')->{json}{queen}{databaseErrors} > 0 }, 'storing it fails');
    is_deeply($web->get('/api/v1/status/buffers')->{json}{failed}, 0, 'it is not given up');
    $queen->sql('ALTER FUNCTION queen.hidden RENAME TO log_push_spooled');
    wait_stored('when the reason has passed');
    is(log_of('u'), 'a:u1', 'and the message is there');
}

# One directory, one process; without a directory an outage is a failure, and push maintenance impossible.
{
    my $second = $queen->start_frontend(env => { FILE_BUFFER_DIR => $dir });
    like($second->log, qr/there is no spool.*another process uses it/, 'a second process does not share the directory');
    is_error(maintenance($true, '', $second), 409, 'this server has no spool to keep pushes in', 'no maintenance without a spool');
    maintenance($true);
    wait_until(sub { $second->post('/api/v1/push', { items => [ { queue => 'n', payload => 1 } ] })->{status} == 503 }, 'the mode is everybody\'s');
    maintenance($false);
    wait_until(sub { $second->post('/api/v1/push', { items => [ { queue => 'n', payload => 1 } ] })->{status} == 201 }, 'and so is its end');
    is($second->stop, 0, 'the second process stops');
}

# A mode survives a restart.
{
    maintenance($true);
    $web->stop;
    $web->start;
    $web->wait_healthy;
    is(statuses(push_to('s', 'a', 's1')), '201 buffered', 'maintenance survives a restart');
    maintenance($false);
    wait_stored('in the end');
}

# A full spool fails, and loses nothing. Encrypted queues have no clear text in it.
{
    my $small = $queen->start_frontend(
        env => { FILE_BUFFER_DIR => "$dir-small", QUEEN_ENCRYPTION_KEY => $key }, args => [ '--spool-max-bytes', 1048576, '--spool-file-messages', 2 ]);
    $small->post('/api/v1/configure', { queue => 'f', options => { encryptionEnabled => $true } });
    maintenance($true);
    wait_until(sub { $small->get('/api/v1/system/shared-state')->{json}{maintenance_mode} }, 'it knows of the maintenance');
    my @ids;
    my $response;
    for my $i (1 .. 40)
    {
        $response = $small->post('/api/v1/push', { items => [ { queue => $i % 2 ? 'f' : 'clear', partition => 'p', transactionId => "f$i", payload => 'wombat-in-spool' . 'x' x 50_000 } ] });
        last unless $response->{status} == 201;
        push @ids, "p:f$i";
    }
    is_error($response, 503, 'the spool is full', 'a full spool');
    cmp_ok(scalar @ids, '>', 10, 'after a good many');
    isnt(system('grep', '-rqaF', 'wombat-in-spool', "$dir-small"), 0, 'nothing in it is in clear');
    maintenance($false);
    wait_until(sub { $small->get('/api/v1/status/buffers')->{json}{pending} == 0 }, 'it is stored');
    is(log_of('f'), join(' ', grep { /[13579]$/ } @ids), 'what was buffered is stored');
    is(log_of('clear'), join(' ', grep { /[02468]$/ } @ids), 'in both queues');
    is($queen->sql(q{SELECT bool_and(f.flags = CASE q.name WHEN 'f' THEN 4 ELSE 0 END)
                       FROM queen.log_segments AS s JOIN queen.log_partitions AS p ON p.id = s.partition_id
                       JOIN queen.queues AS q ON q.id = p.queue_id CROSS JOIN queen.log_frame(s.blob, 0) AS f
                      WHERE q.name IN ('f', 'clear')}), 't', 'encrypted where it should be');
    is($small->stop, 0, 'it stops');
}

# A full disk fails pushes, and leaves nothing behind that fills it.
SKIP:
{
    my $disk = PostgreSQL::Test::Utils::tempdir . '/small';
    mkdir $disk or die;
    skip 'a file system of one megabyte needs root', 3 if system("mount -t tmpfs -o size=1m queen $disk 2>/dev/null") != 0;
    my $full = $queen->start_frontend(env => { FILE_BUFFER_DIR => $disk });
    maintenance($true);
    wait_until(sub { $full->get('/api/v1/system/shared-state')->{json}{maintenance_mode} }, 'it knows of the maintenance');
    is($full->post('/api/v1/push', { items => [ { queue => 'd', payload => 'x' x 1_200_000 } ] })->{status}, 503, 'a full disk') for 1 .. 3;
    is(join(' ', glob "$disk/*"), "$disk/lock", 'no file is left');
    is($full->post('/api/v1/push', { items => [ { queue => 'd', payload => 1 } ] })->{json}[0]{status}, 'buffered', 'a small message has room');
    maintenance($false);
    is($full->stop, 0, 'it stops');
    system("umount $disk");
}

# Property V-90: under load and through an outage, everything that was answered queued or buffered is there once, in
# order.
{
    my $load = QueenHistory::start($queen, ports => [ $web->port ], queue => 'load', producers => 16, partitions => 4,
        roam => 1, batch => 2, repeat => 10, seconds => 120);
    wait_until(sub { $queen->sql(q{SELECT coalesce(sum(last_offset), 0) FROM queen.log_partitions AS p JOIN queen.queues AS q ON q.id = p.queue_id WHERE q.name = 'load'}) > 300 }, 'the load runs');
    stop_database();
    wait_until(sub { pending() > 200 }, 'the spool fills');
    start_database();
    wait_until(sub { pending() == 0 }, 'it is stored under load');
    $load->stop;
    wait_stored('after the load');
    $load->check_log('V-90');
}
$queen->finish;
