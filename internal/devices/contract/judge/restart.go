package judge

import (
	"fmt"
	"time"
)

// Restart is what the plugin did about a sign that a node has started.
type Restart struct {
	// Within is how long it took until all its resources were registered again, or how long it was waited for.
	Within time.Duration
	// Missing are the resources that did not register again.
	Missing []string
	// Ended is how the program ended meanwhile; empty: it did not.
	Ended string
	// Watched says that the plugin is in the plugin watcher's folder, where a node that starts comes to it.
	Watched bool
}

// NodeRestarted judges what follows a kubelet's start: all sockets of the folder removed, kubelet.sock made anew.
func NodeRestarted(r Restart) Check {
	const name = "restart/node"
	switch {
	case r.Ended != "":
		c := check(Warn, name, "", "the plugin ended %s after the restart (%s): it works where something starts it again, such as a DaemonSet", Time(r.Within), r.Ended)
		c.Remedy = "have it started again by whoever runs it, or " + c.Remedy
		return c
	case r.Watched && len(r.Missing) > 0:
		c := check(Fail, name, "", "it told the plugin watcher once what it is, and not again within %s: %s; a node that starts asks anew", Time(r.Within), some(r.Missing))
		c.Remedy = "serve the Registration service of pluginregistration/v1 for as long as the plugin runs, and answer each GetInfo"
		return c
	case r.Watched:
		return check(OK, name, "", "told the plugin watcher again what it is, after %s", Time(r.Within))
	case len(r.Missing) > 0:
		return check(Fail, name, "", "not registered again within %s: %s; the plugin notices neither that its socket was removed nor that kubelet.sock is new", Time(r.Within), some(r.Missing))
	}
	return check(OK, name, "", "registered again after %s", Time(r.Within))
}

// SignNoticed judges one of the two signs by itself. Both do: nodes give both at once.
func SignNoticed(name string, r Restart) Check {
	switch {
	case r.Ended != "":
		return check(Warn, name, "", "the plugin ended after %s: %s", Time(r.Within), r.Ended)
	case len(r.Missing) > 0:
		return check(OK, name, "", "not noticed within %s; the other sign does", Time(r.Within))
	}
	return check(OK, name, "", "noticed: registered again after %s", Time(r.Within))
}

// Refusal is what the plugin did when its registration was refused.
type Refusal struct {
	// Tried is how often it registered in the time Within.
	Tried  int
	Within time.Duration
	Ended  string
}

// Refused judges it.
func Refused(r Refusal) Check {
	const name = "restart/refused"
	perSecond := float64(r.Tried) / max(r.Within.Seconds(), 1)
	switch {
	case r.Ended != "":
		return check(OK, name, "", "it ended: %s", r.Ended)
	case perSecond > 10:
		return check(Warn, name, "", "it registered %d times in %s, without a pause", r.Tried, Time(r.Within))
	case r.Tried > 1:
		return check(OK, name, "", "it lives on, and registered %d times in %s", r.Tried, Time(r.Within))
	}
	return check(Warn, name, "", "it neither ended nor tried again within %s: until it does, it has no node", Time(r.Within))
}

// Used is what the node's own code made of the plugin.
type Used struct {
	Within time.Duration
	// Healthy and Want are how many healthy devices the node counts, and how many the plugin has told.
	Healthy, Want int
	// Granted is what was granted at last.
	Granted string
	// Error is what failed; empty: nothing.
	Error string
	// Problems are the node's words about the plugin.
	Problems []string
}

// UsedByNode judges it.
func UsedByNode(resource string, u Used) Check {
	const name = "node/used"
	switch {
	case u.Healthy != u.Want:
		return check(Fail, name, resource, "the node counts %d healthy devices %s after its start, where the plugin tells %d: %s", u.Healthy, Time(u.Within), u.Want, orNone(u.Problems))
	case u.Error != "":
		return check(Fail, name, resource, "%s", u.Error)
	case len(u.Problems) > 0:
		return check(Warn, name, resource, "the node has problems with it: %s", some(u.Problems))
	}
	return check(OK, name, resource, "%s %s after the node's start%s", count(u.Healthy, "healthy device"), Time(u.Within), u.Granted)
}

// End is how the plugin ended.
type End struct {
	Took time.Duration
	// How it ended; empty: it did not within the time Took, and was killed.
	How string
	// Outlived are the processes that it left.
	Outlived []string
}

// Ends judges the end.
func Ends(e End) []Check {
	signal := check(OK, "end/signal", "", "ended %s after SIGTERM: %s", Time(e.Took), e.How)
	if e.How == "" {
		signal = check(Fail, "end/signal", "", "it did not end within %s of SIGTERM, and was killed", Time(e.Took))
	}
	if len(e.Outlived) == 0 {
		return []Check{signal, check(OK, "end/processes", "", "none is left")}
	}
	return []Check{signal, check(Warn, "end/processes", "", "left, and killed: %s", some(e.Outlived))}
}

// Died is a plugin that ended when nobody had told it to.
func Died(during, how string) Check {
	return check(Fail, "run/alive", "", "the plugin ended during %s: %s", during, how)
}

// Lived is the opposite.
func Lived(d time.Duration) Check {
	return check(OK, "run/alive", "", "%s", fmt.Sprintf("it ran for %s", Time(d)))
}
