/*
 * identity.c
 *		The routes under /auth, by which a dashboard asks who is using it.
 *
 * There are no sessions here: with tokens on, whoever wants to log in does so
 * at the proxy that hands the tokens out.
 */
#include "admin.h"

#include "worker.h"

#include <string.h>

static void
reply_text(Request *req, const char *text)
{
	Buf body = {0};

	buf_append(&body, text, strlen(text));
	http_reply(req, 200, &body);
}

/* GET /auth/me */
void
me_handler(Request *req)
{
	if (req->worker->conf->jwt_enabled)
		http_reply_error_with(req, 401, "there are no sessions: send a token with each request",
							  "code", "auth_required");
	else
		reply_text(req,
				   "{\"user\":{\"id\":\"standalone\",\"email\":\"standalone@localhost\","
				   "\"name\":\"standalone\"},\"tenant\":{\"slug\":\"local\",\"name\":\"local\"},"
				   "\"is_operator\":true,\"clusters\":[{\"slug\":\"local\",\"name\":\"local\","
				   "\"role\":\"admin\"}],\"role\":\"admin\",\"standalone\":true,"
				   "\"act_cluster_header\":\"x-queen-act-cluster\"}");
}

/* GET /auth/login */
void
login_handler(Request *req)
{
	reply_text(req, req->worker->conf->jwt_enabled
						? "{\"message\":\"send a token with each request, in the header "
						  "Authorization: Bearer\"}"
						: "{\"message\":\"no login is needed: authentication is off\"}");
}

/* POST /auth/logout */
void
logout_handler(Request *req)
{
	http_reply(req, 204, NULL);
}
