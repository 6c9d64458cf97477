/*
 * test_hosts.c
 *		Hosts of a connection string, and what is left to libpq.
 */
#include "unit.h"

#include "hosts.h"

static void
assert_text(const char *text, const char *expected)
{
	if (expected == NULL)
		assert_null(text);
	else
	{
		assert_non_null(text);
		assert_string_equal(text, expected);
	}
}

/* "expected" has "n" hosts; with one host there is nothing to choose. */
static void
assert_hosts(const char *dsn, int n, const Host *expected)
{
	Hosts hosts;

	hosts_read(&hosts, dsn);
	assert_int_equal(hosts.n, n);
	for (int i = 0; i < n; i++)
	{
		assert_text(hosts.list[i].name, expected[i].name);
		assert_text(hosts.list[i].address, expected[i].address);
		assert_text(hosts.list[i].port, expected[i].port);
	}
	hosts_free(&hosts);
}

static int
clear_environment(void **state)
{
	static const char *const names[] = {"PGHOST", "PGHOSTADDR", "PGPORT", "PGSERVICE",
										"PGCONNECT_TIMEOUT"};

	for (size_t i = 0; i < lengthof(names); i++)
		unsetenv(names[i]);
	return 0;
}

static void
test_lists(void **state)
{
	assert_hosts("host=a,b", 2, (Host[]){{"a", NULL, NULL}, {"b", NULL, NULL}});
	assert_hosts("host=a,b port=1,2", 2, (Host[]){{"a", NULL, "1"}, {"b", NULL, "2"}});
	assert_hosts("host=a,/run,c port=1", 3,
				 (Host[]){{"a", NULL, NULL}, {"/run", NULL, NULL}, {"c", NULL, NULL}});
	assert_hosts("postgresql://u@a:1,[::1]:2/d?sslmode=require", 2,
				 (Host[]){{"a", NULL, "1"}, {"::1", NULL, "2"}});
	assert_hosts("hostaddr=127.0.0.1,127.0.0.2", 2,
				 (Host[]){{NULL, "127.0.0.1", NULL}, {NULL, "127.0.0.2", NULL}});
	assert_hosts("host=a,b hostaddr=127.0.0.1,127.0.0.2 port=1,2", 2,
				 (Host[]){{"a", "127.0.0.1", "1"}, {"b", "127.0.0.2", "2"}});
}

static void
test_left_to_libpq(void **state)
{
	static const char *const whole[] = {"",
										"host=a",
										"host=a port=1",
										"dbname=d",
										"host=a,",
										"host=,a",
										"host=a,,b",
										"host=a,b port=1,",
										"host=a,b port=1,2,3",
										"host=a,b hostaddr=127.0.0.1",
										"host=a hostaddr=127.0.0.1,127.0.0.2",
										"host=a,b service=s",
										"host=a port=1,2"};

	for (size_t i = 0; i < lengthof(whole); i++)
		assert_hosts(whole[i], 1, (Host[]){{NULL, NULL, NULL}});
}

static void
test_environment(void **state)
{
	setenv("PGHOST", "a,b", 1);
	assert_hosts("", 2, (Host[]){{"a", NULL, NULL}, {"b", NULL, NULL}});
	assert_hosts("port=1,2", 2, (Host[]){{"a", NULL, "1"}, {"b", NULL, "2"}});
	assert_hosts("host=c", 1, (Host[]){{NULL, NULL, NULL}});
	setenv("PGPORT", "3,4", 1);
	assert_hosts("host=c,d", 2, (Host[]){{"c", NULL, "3"}, {"d", NULL, "4"}});
	setenv("PGHOSTADDR", "127.0.0.1,127.0.0.2", 1);
	assert_hosts("", 2, (Host[]){{"a", "127.0.0.1", "3"}, {"b", "127.0.0.2", "4"}});
}

static void
assert_timeout(const char *dsn, int64_t expected)
{
	Hosts hosts;

	hosts_read(&hosts, dsn);
	assert_int_equal(hosts.timeout_ms, expected);
	hosts_free(&hosts);
}

static void
test_timeout(void **state)
{
	assert_timeout("", 10000);
	assert_timeout("host=a,b", 5000);
	assert_timeout("host=a,b,c,d,e", 2000);
	assert_timeout("connect_timeout=0 host=a,b", 5000);
	assert_timeout("connect_timeout=-1", 10000);
	assert_timeout("connect_timeout=x", 10000);
	assert_timeout("connect_timeout=1", 2000);
	assert_timeout("connect_timeout=2", 2000);
	assert_timeout("connect_timeout=3 host=a,b", 3000);
	assert_timeout("connect_timeout=3600", 3600000);
	assert_timeout("connect_timeout=99999999999999999999", 3600000);
	setenv("PGCONNECT_TIMEOUT", "4", 1);
	assert_timeout("host=a,b", 4000);
	assert_timeout("connect_timeout=7", 7000);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_lists, clear_environment),
		cmocka_unit_test_setup(test_left_to_libpq, clear_environment),
		cmocka_unit_test_setup(test_environment, clear_environment),
		cmocka_unit_test_setup(test_timeout, clear_environment),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
