/*
 * transaction.h
 *		POST /api/v1/transaction
 */
#ifndef QUEEN_TRANSACTION_H
#define QUEEN_TRANSACTION_H

#include "http.h"

extern void transaction_handler(Request *req);

#endif
