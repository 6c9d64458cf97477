/*
 * worker.c
 *		One thread of the front end: its event loop, and how it stops.
 *
 * A turn of the loop reads everything that arrived before it sends anything,
 * so that what arrives together travels together; except that what has waited
 * for PostgreSQL to answer goes out before that answer is handed on, so that
 * neither of the two is idle meanwhile.
 */
#include "worker.h"

#include "ack.h"
#include "auth.h"
#include "clock.h"
#include "crypt.h"
#include "drain.h"
#include "fusion.h"
#include "log.h"
#include "maintenance.h"
#include "packer.h"
#include "pop.h"
#include "reports.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define TICK_MS 100
#define LAST_TURNS 20 /* to hand the last answers to the network */

Worker *workers;
int n_workers;
int64_t process_start_ms;

static atomic_int running;

/* --- hints between threads -------------------------------------------------- */

/* Copies the hint into another thread's mailbox. */
static void
send_hint(Worker *to, int kind, const Uuid *id, Span queue, Span partition)
{
	WorkerHint *hint = calloc(1, sizeof(*hint) + queue.len + partition.len);
	uint64_t one = 1;

	if (hint == NULL)
		return; /* a lost hint costs one fallback interval */
	hint->kind = kind;
	if (id)
		hint->id = *id;
	hint->queue_len = queue.len;
	hint->partition_len = partition.len;
	if (queue.len > 0)
		memcpy(hint->names, queue.ptr, queue.len);
	if (partition.len > 0)
		memcpy(hint->names + queue.len, partition.ptr, partition.len);
	pthread_mutex_lock(&to->hint_lock);
	hint->next = to->hints;
	to->hints = hint;
	pthread_mutex_unlock(&to->hint_lock);
	if (write(to->hint_fd, &one, sizeof(one)) < 0)
		log_event(LOG_LEVEL_DEBUG, "could not wake another thread", NULL);
}

static void
hint_others(Worker *worker, int kind, const Uuid *id, Span queue, Span partition)
{
	for (int i = 0; i < n_workers; i++)
	{
		Metrics *metrics = &workers[i].metrics;

		if (&workers[i] != worker &&
			atomic_load_explicit(&metrics->values[METRIC_WAITING], memory_order_relaxed) > 0)
			send_hint(&workers[i], kind, id, queue, partition);
	}
}

void
worker_wake_others(Worker *worker, const Uuid *tenant, Span queue, Span partition)
{
	hint_others(worker, HINT_PARTITION, tenant, queue, partition);
}

void
worker_wake_queue(Worker *worker, const Uuid *queue_id)
{
	Span none = {NULL, 0};

	pops_wake_queue(worker->pops, queue_id);
	hint_others(worker, queue_id ? HINT_QUEUE : HINT_ALL, queue_id, none, none);
}

void
worker_spooled(Worker *worker, PushItem *item)
{
	uint64_t one = 1;

	pthread_mutex_lock(&worker->hint_lock);
	item->next = worker->spooled;
	worker->spooled = item;
	pthread_mutex_unlock(&worker->hint_lock);
	if (write(worker->hint_fd, &one, sizeof(one)) < 0)
		log_event(LOG_LEVEL_DEBUG, "could not wake another thread", NULL);
}

/* Answers what has come back from the spool. */
static void
take_spooled(Worker *worker)
{
	PushItem *item;

	pthread_mutex_lock(&worker->hint_lock);
	item = worker->spooled;
	worker->spooled = NULL;
	pthread_mutex_unlock(&worker->hint_lock);
	while (item)
	{
		PushItem *next = item->next;

		worker->spooling--;
		fusion_spooled(item);
		item = next;
	}
}

static void
act_on_hint(Worker *worker, const WorkerHint *hint)
{
	if (hint->kind == HINT_PARTITION)
		pops_wake_partition(worker->pops, &hint->id, (Span){hint->names, hint->queue_len},
							(Span){hint->names + hint->queue_len, hint->partition_len});
	else
		pops_wake_queue(worker->pops, hint->kind == HINT_QUEUE ? &hint->id : NULL);
}

static void
on_hint(evutil_socket_t fd, short what, void *arg)
{
	Worker *worker = arg;
	WorkerHint *hint;
	uint64_t count;

	(void) what;
	if (read(fd, &count, sizeof(count)) < 0)
		return;
	pthread_mutex_lock(&worker->hint_lock);
	hint = worker->hints;
	worker->hints = NULL;
	pthread_mutex_unlock(&worker->hint_lock);
	while (hint)
	{
		WorkerHint *next = hint->next;

		act_on_hint(worker, hint);
		free(hint);
		hint = next;
	}
	take_spooled(worker);
}

/* Whether the news is ours alone: then our own pops have been told already. */
static bool
is_own_news(const char *item, size_t len)
{
	return len > UUID_TEXT_LEN && item[UUID_TEXT_LEN] == ':' &&
		   atoi(item + UUID_TEXT_LEN + 1) == db_wake_origin();
}

/*
 * A notification: "maintenance" when a mode was changed, else of the database's
 * wake worker: "*", or queue ids with commas
 * between, each perhaps with a colon and the number of whose news it is.
 */
static void
on_notification(void *ctx, const char *payload)
{
	Worker *worker = ctx;

	if (strcmp(payload, "maintenance") == 0)
	{
		maintenance_refresh();
		maintenance_tick(worker);
		return;
	}
	while (*payload)
	{
		size_t len = strcspn(payload, ",");
		Uuid id;

		if (is_own_news(payload, len))
		{
			/* nothing to do */
		}
		else if (uuid_parse(payload, len < UUID_TEXT_LEN ? len : UUID_TEXT_LEN, &id))
			worker_wake_queue(worker, &id);
		else
			worker_wake_queue(worker, NULL);
		payload += len + (payload[len] == ',');
	}
}

/* --- the loop ---------------------------------------------------------------- */

#define LAG_WEIGHT 16	  /* of the past in the average, against 1 */
#define LAG_MAX_TICKS 600 /* after which a maximum has faded to a third */

/* Gauges that other threads read: the loop's own delay, and the database connections. */
static void
take_samples(Worker *worker)
{
	Metrics *metrics = &worker->metrics;
	int64_t now = clock_ms();
	uint64_t late = now > worker->tick_due ? (uint64_t) (now - worker->tick_due) * 1000 : 0;
	uint64_t average = metrics_get(metrics, METRIC_LOOP_LAG_US);
	uint64_t longest = metrics_get(metrics, METRIC_LOOP_LAG_MAX_US);
	int up, active, waiting;

	longest -= longest / LAG_MAX_TICKS;
	metrics_set(metrics, METRIC_LOOP_LAG_US, (average * (LAG_WEIGHT - 1) + late) / LAG_WEIGHT);
	metrics_set(metrics, METRIC_LOOP_LAG_MAX_US, late > longest ? late : longest);
	worker->tick_due = now + TICK_MS;
	db_counts(worker->db, &up, &active, &waiting);
	metrics_set(metrics, METRIC_DB_UP, (uint64_t) up);
	metrics_set(metrics, METRIC_DB_ACTIVE, (uint64_t) active);
	metrics_set(metrics, METRIC_DB_WAITING, (uint64_t) waiting);
}

static void
on_tick(evutil_socket_t fd, short what, void *arg)
{
	Worker *worker = arg;

	(void) fd;
	(void) what;
	take_samples(worker);
	if (worker->id == 0)
	{
		maintenance_tick(worker);
		drain_tick(worker->drain);
	}
	http_tick(worker->http);
	auth_tick(worker->auth);
	db_tick(worker->db);
	fusion_tick(worker->fusion);
	acks_tick(worker->acks);
	pops_tick(worker->pops);
}

/* How many acknowledgements and pops are ready, counted as far as it matters. */
static int
reads_ready(const Worker *worker)
{
	int enough = worker->reads.n + 1;
	int n = acks_ready(worker->acks, enough);

	return n + pops_ready(worker->pops, enough - n);
}

/*
 * What is ready together goes in one transaction: the pops may have what the
 * acknowledgements have freed, and none of them waits for a lock.
 */
static void
send_reads(Worker *worker)
{
	int ready;

	while ((ready = reads_ready(worker)) > 0 && db_lane_free(worker->db, LANE_READ) &&
		   inflight_worth_a_call(&worker->reads, ready))
	{
		DbCall *acks = acks_next_call(worker->acks);
		DbCall *pops = pops_next_call(worker->pops);

		if (acks && pops)
			db_call_follow(acks, LANE_READ, pops);
		db_submit(worker->db, LANE_READ, acks ? acks : pops);
	}
}

static void
send_everything(Worker *worker)
{
	pops_dispatch(worker->pops);
	send_reads(worker);
	acks_dispatch(worker->acks);
	fusion_dispatch(worker->fusion);
}

static void
turn(Worker *worker)
{
	event_base_loop(worker->base, EVLOOP_ONCE | (worker->http_pending ? EVLOOP_NONBLOCK : 0));
	send_everything(worker);
	if (worker->http_pending)
	{
		http_run(worker->http);
		send_everything(worker);
	}
}

/* No new connections, nothing parked; what is in flight may finish. */
static void
begin_drain(Worker *worker)
{
	worker->draining = true;
	worker->drain_deadline = clock_ms() + worker->conf->shutdown_timeout_ms;
	http_quiesce(worker->http);
	pops_drain(worker->pops);
	auth_drain(worker->auth);
}

static bool
drained(const Worker *worker)
{
	return (http_active(worker->http) == 0 && fusion_idle(worker->fusion)) ||
		   clock_ms() > worker->drain_deadline;
}

static void
close_worker(Worker *worker)
{
	worker->closing = true;
	db_shutdown(worker->db);
	send_everything(worker); /* with all lanes down: fails what is left */
	while (worker->spooling > 0)
	{
		struct pollfd hint = {.fd = worker->hint_fd, .events = POLLIN};

		(void) poll(&hint, 1, -1); /* the disk will answer */
		take_spooled(worker);
	}
	for (int i = 0; i < LAST_TURNS && http_active(worker->http) > 0; i++)
		http_run(worker->http); /* what is read now is answered at once */
	http_stop(worker->http);
	auth_free(worker->auth);
	fusion_free(worker->fusion);
	crypt_free(worker->crypt);
	packer_free(worker->packer);
	pops_free(worker->pops);
	acks_free(worker->acks);
	reports_free(worker->reports);
	drain_free(worker->drain);
	db_free(worker->db);
	event_free(worker->tick);
	event_free(worker->hint_event);
	close(worker->hint_fd);
	event_base_free(worker->base);
}

static void *
worker_main(void *arg)
{
	Worker *worker = arg;

	while (!worker->draining || !drained(worker))
	{
		turn(worker);
		if (atomic_load(&worker->stop) && !worker->draining)
			begin_drain(worker);
	}
	close_worker(worker);
	atomic_fetch_sub(&running, 1);
	return NULL;
}

/* --- start and stop ----------------------------------------------------------- */

static struct event_base *
new_base(void)
{
	/* Parked requests are watched for the client hanging up. */
	struct event_config *config = event_config_new();
	struct event_base *base;

	event_config_require_features(config, EV_FEATURE_EARLY_CLOSE);
	event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK);
	event_config_set_flag(config, EVENT_BASE_FLAG_PRECISE_TIMER);
	base = event_base_new_with_config(config);
	event_config_free(config);
	return base;
}

static bool
open_worker(Worker *worker, int id, const struct Conf *conf, int listen_fd)
{
	struct timeval tick = {0, TICK_MS * 1000};

	worker->id = id;
	worker->conf = conf;
	worker->base = new_base();
	worker->hint_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (worker->base == NULL || worker->hint_fd < 0)
		return false;
	pthread_mutex_init(&worker->hint_lock, NULL);
	worker->hint_event =
		event_new(worker->base, worker->hint_fd, EV_READ | EV_PERSIST, on_hint, worker);
	event_add(worker->hint_event, NULL);
	worker->tick = event_new(worker->base, -1, EV_PERSIST, on_tick, worker);
	event_add(worker->tick, &tick);
	worker->packer = packer_new((int) conf->zstd_level);
	worker->crypt = conf->has_crypt_key ? crypt_new(conf->crypt_key) : NULL;
	if (conf->has_crypt_key && worker->crypt == NULL)
		return false;
	worker->auth = auth_new(worker);
	if (worker->auth == NULL)
		return false;
	worker->fusion = fusion_new(worker);
	worker->pops = pops_new(worker);
	worker->acks = acks_new(worker);
	worker->reports = reports_new();
	worker->drain = id == 0 ? drain_new(worker) : NULL;
	worker->tick_due = clock_ms() + TICK_MS;
	worker->db = db_open(worker->base, conf, id == 0 ? on_notification : NULL, worker);
	worker->http = http_start(worker, dup(listen_fd));
	return worker->http != NULL;
}

bool
workers_start(const struct Conf *conf, int listen_fd)
{
	process_start_ms = clock_ms();
	workers = calloc((size_t) conf->threads, sizeof(*workers));
	for (int i = 0; i < conf->threads; i++)
		if (!open_worker(&workers[i], i, conf, listen_fd))
			return false;
	n_workers = (int) conf->threads;
	close(listen_fd); /* each daemon has its own */
	for (int i = 0; i < n_workers; i++)
	{
		if (pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]) != 0)
			return false;
		atomic_fetch_add(&running, 1);
	}
	return true;
}

void
workers_stop(void)
{
	uint64_t one = 1;

	for (int i = 0; i < n_workers; i++)
	{
		atomic_store(&workers[i].stop, true);
		if (write(workers[i].hint_fd, &one, sizeof(one)) < 0)
			log_event(LOG_LEVEL_DEBUG, "could not wake a thread", NULL);
	}
}

int
workers_running(void)
{
	return atomic_load(&running);
}

void
workers_join(void)
{
	for (int i = 0; i < n_workers; i++)
		pthread_join(workers[i].thread, NULL);
	free(workers);
}
