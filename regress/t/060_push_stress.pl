# Push by many sessions at once, in fused calls of one frame each, with savepoints, rollbacks and
# VACUUM in between: no hole, no duplicate, no stamp out of order (V-02, V-03, V-04, V-05, V-11), no
# deadlock; and all of it is there after a crash, in sound tables and indexes (V-91). The ids come from
# a small range, so that most of them are pushed by several sessions.
use strict;
use warnings;
use lib 'regress/t';
use PostgreSQL::Test::Utils;
use QueenHistory;
use QueenTest;
use Test::More;

my $queen = QueenTest->new('stress', conf => "queen.dedup_memory = 256kB\n");
my $node = $queen->node;
my $dir = PostgreSQL::Test::Utils::tempdir;

$queen->sql(<<'SQL');
SELECT queen.log_provision(array_fill('00000000-0000-0000-0000-000000000001'::uuid, ARRAY[3]),
                           '{q,q,q}', '{p1,p2,p3}');
CREATE TABLE answered (partition_id uuid, base_offset bigint, created_at timestamptz, hash bytea);
-- Pushes n random ids to random partitions in one call, and keeps what was answered "queued".
CREATE FUNCTION push_random(n int, wait boolean) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    ids        text[] := ARRAY(SELECT (random() * 3000)::int FROM generate_series(1, n));
    partitions text[] := ARRAY(SELECT 'p' || 1 + floor(random() * 3)::int FROM generate_series(1, n));
BEGIN
    INSERT INTO answered
    SELECT v.partition_id, v.base_offset, v.created_at, queen.log_hash(ids[v.entry])
      FROM queen.log_push(array_fill('00000000-0000-0000-0000-000000000001'::uuid, ARRAY[n]),
                          array_fill('q'::text, ARRAY[n]), partitions, array_fill(1, ARRAY[n]),
                          ARRAY(SELECT queen.log_hash(i) FROM unnest(ids) WITH ORDINALITY AS u (i, o) ORDER BY o),
                          array_fill('\x01'::bytea, ARRAY[n]), wait) AS v
     WHERE v.status = 'queued';
END
$$;
SQL

my %scripts = (
    'wait@3' => "\\set n random(1, 10)\nSELECT push_random(:n, true);\n",
    'try@5' => "\\set n random(1, 10)\nSELECT push_random(:n, false);\n",
    'savepoint@2' => "\\set n random(1, 4)\nBEGIN;\nSELECT push_random(:n, false);\nSAVEPOINT s;\n"
        . "SELECT push_random(:n, false);\nSELECT push_random(:n, false);\nROLLBACK TO s;\n"
        . "SELECT push_random(:n, false);\nCOMMIT;\n",
    'rollback@2' => "\\set n random(1, 4)\nBEGIN;\nSELECT push_random(:n, false);\n"
        . "SELECT push_random(:n, false);\nROLLBACK;\n",
    'vacuum@1' => "VACUUM queen.log_partitions;\nVACUUM queen.log_txns;\n");
my @files;
for my $name (sort keys %scripts)
{
    my ($file) = $name =~ /^(\w+)/;
    append_to_file("$dir/$file.sql", $scripts{$name});
    push @files, '-f', $dir . '/' . $name =~ s/@/.sql@/r;
}
$node->command_ok(
    [ 'pgbench', '--no-vacuum', '--client=8', '--transactions=100', '--protocol=prepared', @files, 'postgres' ],
    'eight sessions push without an error');

sub check_log
{
    my ($when) = @_;
    is($queen->sql(<<'SQL'), '0', "V-02, V-04: ranges and stamps $when");
SELECT count(*)
  FROM (SELECT s.base_offset, s.end_offset, s.created_at, p.last_offset,
               lag(s.end_offset, 1, -1::bigint) OVER w AS previous_end,
               lag(s.created_at) OVER w AS previous_stamp, lead(s.base_offset) OVER w AS next
          FROM queen.log_partitions AS p LEFT JOIN queen.log_segments AS s ON s.partition_id = p.id
        WINDOW w AS (PARTITION BY p.id ORDER BY s.base_offset)) AS log
 WHERE base_offset IS DISTINCT FROM previous_end + 1 OR created_at <= previous_stamp
    OR next IS NULL AND end_offset <> last_offset
SQL
    is($queen->sql(<<'SQL'), '0', "V-03: one sidecar row for each segment $when");
SELECT count(*) FROM queen.log_segments AS s FULL JOIN queen.log_txns AS t USING (partition_id, base_offset)
 WHERE (s.end_offset, s.created_at) IS DISTINCT FROM (t.end_offset, t.created_at)
SQL
    is($queen->sql(<<'SQL'), '0', "V-11: every id once in a partition $when");
SELECT count(*) FROM (SELECT FROM queen.log_txns GROUP BY partition_id, hashes HAVING count(*) > 1) AS d
SQL
    is($queen->sql(<<'SQL'), '0', "V-05, V-91: what was answered is what is stored $when");
SELECT count(*)
  FROM answered AS a FULL JOIN queen.log_txns AS t ON t.partition_id = a.partition_id AND t.base_offset = a.base_offset
 WHERE (a.created_at, a.hash) IS DISTINCT FROM (t.created_at, t.hashes)
SQL
    cmp_ok($queen->sql('SELECT count(*) FROM answered'), '>', 1000, "messages $when");
}

check_log('after the run');
$node->stop('immediate');
$node->start;
check_log('after a crash');
QueenHistory::check_storage($queen, 'after a crash');

$queen->finish;
