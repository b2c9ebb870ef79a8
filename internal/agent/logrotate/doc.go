// Package logrotate rotates the logs of containers for runtimes that do not do it themselves: by CRI, and as kubelets do.
//
// A log that has reached its size becomes PATH.YYYYMMDD-HHMMSS, and the runtime is asked to reopen it (ReopenContainerLog); files that were moved away
// before are compressed (.gz), and the oldest removed. It guarantees that no line is lost or cut, at whatever point the agent is killed: a log that was moved
// away and not reopened is reopened by the next look. How large a file gets until the next look is up to its container.
//
// Containers may write where their logs are (a hostPath volume of /var/log): nothing outside of the directory of all logs is touched, no link below it is
// followed, and what is no regular file is not opened.
package logrotate
