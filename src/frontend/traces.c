/*
 * traces.c
 *		Events that applications record about a message.
 */
#include "admin.h"

#include "body.h"
#include "db.h"
#include "names.h"
#include "protocol.h"
#include "worker.h"

#include <stdio.h>
#include <unistd.h>

#define NAMES_MAX 100
#define PAGE_MAX 1000
#define BY_NAME_DEFAULT 100
#define NAMES_DEFAULT 50

/* --- recording ---------------------------------------------------------------- */

typedef struct Trace
{
	Span transaction_id, partition_text, group, event_type;
	Uuid partition_id;
	Span data;
	PgArray *names;
	int n_names;
} Trace;

static bool
check_name(Body *body, const char *member, Span name)
{
	const char *why = name_check(name);

	return why == NULL || body_fail(body, member, why);
}

static bool
read_name(Body *body, Trace *trace)
{
	Span name = {NULL, 0};

	if (trace->n_names++ == NAMES_MAX)
		return body_too_many(body, "traceNames", NAMES_MAX);
	if (!body_text(body, "traceNames", false, &name) || !check_name(body, "traceNames", name))
		return false;
	pgarray_add_span(trace->names, name);
	return true;
}

/* One name, or a list of them, or null. */
static bool
read_names(Body *body, Trace *trace)
{
	JsonReader *reader = &body->reader;
	JsonType type;
	JsonValue null;

	if (trace->n_names > 0)
		return body_fail(body, "traceNames", "appears twice");
	if (!json_peek(reader, &type))
		return false;
	if (type == JSON_NULL)
		return json_value(reader, &null);
	if (type != JSON_ARRAY)
		return read_name(body, trace);
	if (!json_enter_array(reader))
		return false;
	while (json_next_element(reader))
		if (!read_name(body, trace))
			return false;
	return reader->error == NULL;
}

static bool
read_data(Body *body, Trace *trace)
{
	JsonValue value;

	if (trace->data.ptr)
		return body_fail(body, "data", "appears twice");
	if (!json_value(&body->reader, &value))
		return false;
	if (value.type == JSON_NULL)
		return true;
	if (value.type != JSON_OBJECT)
		return body_fail(body, "data", "must be an object");
	trace->data = value.text;
	return true;
}

static bool
read_member(Body *body, const JsonValue *key, Trace *trace)
{
	JsonValue ignored;

	if (json_string_equals(key, "transactionId"))
		return body_text(body, "transactionId", true, &trace->transaction_id);
	if (json_string_equals(key, "partitionId"))
		return body_text(body, "partitionId", true, &trace->partition_text);
	if (json_string_equals(key, "consumerGroup"))
		return body_text(body, "consumerGroup", true, &trace->group);
	if (json_string_equals(key, "eventType"))
		return body_text(body, "eventType", true, &trace->event_type);
	if (json_string_equals(key, "traceNames"))
		return read_names(body, trace);
	if (json_string_equals(key, "data"))
		return read_data(body, trace);
	return json_value(&body->reader, &ignored);
}

static bool
read_trace(Body *body, Trace *trace)
{
	JsonValue key;

	if (!json_enter_object(&body->reader))
		return false;
	while (json_next_key(&body->reader, &key))
		if (!read_member(body, &key, trace))
			return false;
	if (!json_end(&body->reader))
		return false;
	if (trace->transaction_id.ptr == NULL)
		return body_fail(body, "transactionId", "is required");
	if (trace->partition_text.ptr == NULL)
		return body_fail(body, "partitionId", "is required");
	if (trace->data.ptr == NULL)
		return body_fail(body, "data", "is required");
	if (!uuid_parse(trace->partition_text.ptr, trace->partition_text.len, &trace->partition_id))
		return body_fail(body, "partitionId", "is not a UUID");
	if (trace->group.len == 0)
		trace->group = span_of(QUEUE_MODE_GROUP);
	if (trace->event_type.len == 0)
		trace->event_type = SPAN_LITERAL("info");
	return check_name(body, "transactionId", trace->transaction_id) &&
		   check_name(body, "consumerGroup", trace->group) &&
		   check_name(body, "eventType", trace->event_type);
}

static void
on_recorded(DbCall *call, PGresult *res, const DbError *error)
{
	Request *req = call->ctx;
	Buf body = {0};
	char text[UUID_TEXT_LEN];
	Uuid id;

	if (error)
	{
		admin_reply_error(req, error);
		return;
	}
	pgcol_uuid(res, 0, 0, &id);
	uuid_format(&id, text);
	PQclear(res);
	buf_printf(&body, "{\"success\":true,\"traceId\":\"%.*s\"}", UUID_TEXT_LEN, text);
	http_reply(req, 201, &body);
}

/* Who recorded it: host and process. */
static void
add_worker(DbCall *call, int param)
{
	char host[65] = "", text[96];

	gethostname(host, sizeof(host) - 1);
	snprintf(text, sizeof(text), "%s-%ld", host, (long) getpid());
	db_call_text(call, param, span_of(text));
}

void
trace_handler(Request *req)
{
	DbCall *call = db_call_new(CALL_TRACE, on_recorded, req);
	Trace trace = {.names = db_call_array(call, 5, OID_TEXT)};
	Buf strings = {0};
	Body body;

	if (body_begin(&body, req, &strings) && read_trace(&body, &trace))
	{
		db_call_uuid(call, 0, &req->tenant);
		db_call_uuid(call, 1, &trace.partition_id);
		db_call_text(call, 2, trace.transaction_id);
		db_call_text(call, 3, trace.group);
		db_call_text(call, 4, trace.event_type);
		pgarray_end(trace.names);
		db_call_text(call, 6, trace.data);
		add_worker(call, 7);
		db_submit(req->worker->db, LANE_ADMIN, call);
	}
	else
	{
		db_call_free(call);
		body_refuse(&body, req);
	}
	buf_free(&strings);
}

/* --- listings ------------------------------------------------------------------ */

void
traces_handler(Request *req)
{
	DbCall *call;
	Uuid partition_id;

	if (!uuid_parse(req->params[0].ptr, req->params[0].len, &partition_id))
	{
		http_reply_error(req, 400, "partitionId is not a UUID");
		return;
	}
	if (admin_refuse_name(req, "transactionId", transaction_id_check(req->params[1])))
		return;
	call = db_call_new(CALL_TRACES, admin_on_json, req);
	db_call_uuid(call, 0, &req->tenant);
	db_call_uuid(call, 1, &partition_id);
	db_call_text(call, 2, req->params[1]);
	db_submit(req->worker->db, LANE_ADMIN, call);
}

static void
add_page(DbCall *call, int param, const Request *req, int limit)
{
	db_call_int(call, param, admin_number_arg(req, "limit", limit, PAGE_MAX));
	db_call_int(call, param + 1, admin_number_arg(req, "offset", 0, INT32_MAX));
}

void
traces_by_name_handler(Request *req)
{
	DbCall *call;

	if (admin_refuse_name(req, "name", name_check(req->params[0])))
		return;
	call = db_call_new(CALL_TRACES_BY_NAME, admin_on_json, req);
	db_call_uuid(call, 0, &req->tenant);
	db_call_text(call, 1, req->params[0]);
	add_page(call, 2, req, BY_NAME_DEFAULT);
	db_submit(req->worker->db, LANE_ADMIN, call);
}

void
trace_names_handler(Request *req)
{
	DbCall *call = db_call_new(CALL_TRACE_NAMES, admin_on_json, req);

	db_call_uuid(call, 0, &req->tenant);
	add_page(call, 1, req, NAMES_DEFAULT);
	db_submit(req->worker->db, LANE_ADMIN, call);
}
