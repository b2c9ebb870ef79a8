// Package cronjob is the controller of cron jobs: it makes a job at each of their times.
//
// What is to be done follows from the cron job, its jobs and the time (Decide), and while the caches do not show all that was written for a cron job nothing is
// decided. A job's name follows from the time that it is for, so that a controller that is killed before it has written down that it made one makes no
// second one: it finds it, and writes that down then. It wakes when the next time has come, and not in between.
//
// It is upstream's in what it does and in its reasons and events.
package cronjob
