/*
 * gucs.h
 *		Settings of the workers and of the statistics.
 */
#ifndef QUEEN_GUCS_H
#define QUEEN_GUCS_H

extern char *queen_databases;			 /* comma-separated list of names */
extern bool queen_workers;				 /* off: the launcher stops them */
extern int queen_restart_interval;		 /* s */
extern int queen_retention_interval;	 /* ms */
extern int queen_sidecar_purge_interval; /* ms */
extern int queen_lease_expiry_interval;	 /* ms */
extern int queen_lease_sweep_interval;	 /* s */
extern int queen_wake_delay;			 /* ms */
extern int queen_history_interval;		 /* s */
extern int queen_maintenance_batch;		 /* rows per step */
extern int queen_max_tracked_queues;
extern bool queen_use_worklists;
extern int queen_worklist_size;			  /* partitions */
extern int queen_worklist_check_interval; /* s */
extern int queen_dedup_floor;			  /* s, of this session */
extern int queen_wake_origin;			  /* of this session; 0: none */

extern void gucs_init(void);

#endif
