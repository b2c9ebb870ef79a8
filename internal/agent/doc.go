// Package agent is the role agent: it makes the pods that are bound to its node run, through any CRI v1 runtime, and tells
// the API server how they are.
//
//	API server --watch--> pods --one each--> worker --CRI--> runtime
//	     ^                                     |  ^
//	     |   status, nodestatus, events        |  +-- the runtime's events
//	     +-------------------------------------+
//
// Its parts: plan decides and is pure, worker acts, cri observes, cdiprobe tries out what CRI does not tell of a runtime, podspec translates, volumes, env and objects resolve what
// a container refers to, pullauth finds credentials for pulls, imagekeep removes images by what imagegc decides, status and
// nodestatus tell, server serves logs and streams, podlog reads logs.
//
// It guarantees that what it does depends only on the API server, the runtime and the host: killed at any point and
// started again, it goes on. Pods run on while it is away.
package agent
