# Runs programs that put load on a server, and measures what it cost the server.
package Bench::Load;

use strict;
use warnings;
use Cwd 'abs_path';
use FindBin;
use JSON::PP;

my $root = abs_path("$FindBin::RealBin/..");
my $build = "$root/build";
my $json = JSON::PP->new;

# Builds what is missing or older than its source.
sub make_programs
{
    local %ENV = %ENV;
    delete @ENV{qw(MAKEFLAGS MFLAGS MAKELEVEL)};
    system('make', '-s', '-C', $root, 'bench-programs', 'bench-peers') == 0 or die "the build failed\n";
    return;
}

# Runs a program; its last line is a report in JSON. It fails when anything was answered wrongly.
sub run_program
{
    my (@command) = @_;
    open my $pipe, '-|', @command or die "$command[0]: $!\n";
    my @lines = <$pipe>;
    close $pipe or die 'wrong answers: ' . join(' ', @command) . "\n@lines";
    return $json->decode($lines[-1]);
}

sub program
{
    my ($name, @arguments) = @_;
    return run_program("$build/$name", @arguments);
}

# Runs the load generator against a port and returns its report.
sub generate
{
    my ($port, %options) = @_;
    my @arguments = map { defined $options{$_} ? ("--$_", $options{$_} eq '' ? () : $options{$_}) : () }
      sort keys %options;
    return program('queen-bench', '--port', $port, @arguments);
}

# Starts a program that goes on; returns its process id and a pipe of its output.
sub start_program
{
    my (@command) = @_;
    my $pid = open my $pipe, '-|', @command or die "$command[0]: $!\n";
    return { pid => $pid, pipe => $pipe };
}

sub stop_program
{
    my ($program) = @_;
    kill 'TERM', $program->{pid};
    close $program->{pipe};
    return;
}

# Puts load on the server and returns the report with the server's use per message added.
# "count" names the member that is the number of messages, "pushed" or "acknowledged".
sub measure
{
    my ($server, $count, $load) = @_;
    my $before = $server->usage;
    my $report = $load->();
    my $after = $server->usage;
    my $messages = $report->{$count};
    my %used = map { ($_ => $after->{$_} - $before->{$_}) } keys %$before;
    die "no message in time\n" unless $messages > 0 && $report->{seconds} > 0;
    return {
        %$report,
        messages => $messages,
        rate => $messages / $report->{seconds},
        memory => $server->memory,
        map { ("${_}_per_message" => $used{$_} / $messages) } keys %used,
    };
}

1;
