package judge

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Host is what answers are compared with.
type Host struct {
	// Paths says what is at a path of the host: "" nothing, else "a device node", "a folder", "a file".
	Paths map[string]string
	// CDI says why a CDI name cannot be injected; empty: it can.
	CDI map[string]string
}

// Answers judges the answers to all allocations that were answered: one check for each rule, with examples.
func Answers(resource string, all []Allocation, h Host) []Check {
	j := &answers{cdiFaults: map[string][]string{}}
	for _, a := range all {
		if !a.Failed() {
			j.add(a, h)
		}
	}
	for _, why := range j.cdiReasons { // what all devices of a spec lack is told once
		note(&j.cdi.fail, "%s: %s", some(j.cdiFaults[why]), why)
	}
	first := []Check{
		j.responses.check("answer/responses", resource, "one for each request"),
		j.content(resource),
		j.envs.check("answer/envs", resource, count(len(j.names), "name")+listOf(j.names)),
		j.paths.check("answer/paths", resource, "all absolute"),
		j.permissions.check("answer/permissions", resource, "of r, w and m"),
		j.hostPaths.check("answer/host-paths", resource, count(len(j.seen), "path")+listOf(j.seen)),
		j.cdi.check("answer/cdi", resource, count(len(j.cdiSeen), "name")+listOf(j.cdiSeen)),
	}
	// What the node refuses and no rule above has named.
	if len(j.unusable.fail) > 0 && slices.ContainsFunc(first, func(c Check) bool { return c.Verdict == Fail }) {
		return append(first, NotDone("answer/usable", resource, "the node would refuse what fails above"))
	}
	return append(first, j.unusable.check("answer/usable", resource, "all answers can be used"))
}

// findings are what is wrong by one rule.
type findings struct{ fail, warn []string }

func (f findings) check(name, resource, fine string) Check {
	switch {
	case len(f.fail) > 0:
		return check(Fail, name, resource, "%s", some(f.fail))
	case len(f.warn) > 0:
		return check(Warn, name, resource, "%s", some(f.warn))
	}
	return check(OK, name, resource, "%s", fine)
}

func note(list *[]string, format string, args ...any) {
	if s := fmt.Sprintf(format, args...); !slices.Contains(*list, s) {
		*list = append(*list, s)
	}
}

// answers gathers.
type answers struct {
	responses, envs, paths, permissions, hostPaths, cdi, unusable findings
	names, seen, cdiSeen                                          []string
	cdiFaults                                                     map[string][]string // the CDI names with a fault
	cdiReasons                                                    []string            // the faults in the order of their coming
	total, empty                                                  int
	most                                                          [5]int // of nodes, mounts, variables, annotations, CDI names in one answer
}

func (j *answers) add(a Allocation, h Host) {
	responses := a.Response.GetContainerResponses()
	if len(responses) != a.Containers && a.Containers == 1 {
		note(&j.responses.fail, "container_responses has %d entries for a request with %d container (%s)", len(responses), a.Containers, a.What)
	}
	if a.Unusable != "" {
		note(&j.unusable.fail, "%s", a.Unusable)
	}
	for _, r := range responses {
		j.total++
		size := [5]int{len(r.GetDevices()), len(r.GetMounts()), len(r.GetEnvs()), len(r.GetAnnotations()), len(r.GetCdiDevices())}
		if size == [5]int{} {
			j.empty++
		}
		for i, n := range size {
			j.most[i] = max(j.most[i], n)
		}
		j.addEnvs(r.GetEnvs())
		places := map[string]bool{}
		for _, m := range r.GetMounts() {
			j.addPaths("mounts", m.GetHostPath(), m.GetContainerPath(), places)
			j.addHostPath(m.GetHostPath(), false, h)
		}
		for _, d := range r.GetDevices() {
			j.addPaths("devices", d.GetHostPath(), d.GetContainerPath(), places)
			j.addHostPath(d.GetHostPath(), true, h)
			if p := d.GetPermissions(); p == "" || strings.Trim(p, "rwm") != "" {
				note(&j.permissions.fail, "devices: %s has the permissions %s", brief(d.GetContainerPath()), brief(p))
			}
		}
		j.addCDI(r.GetCdiDevices(), h)
	}
}

func (j *answers) addEnvs(envs map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(envs)) {
		note(&j.names, "%s", brief(name))
		switch {
		case name == "" || strings.ContainsAny(name, "=\x00"):
			note(&j.envs.fail, "%s is no name of a variable", brief(name))
		case strings.ContainsRune(envs[name], 0):
			note(&j.envs.fail, "the value of %s has a zero byte", name)
		case strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
			note(&j.envs.warn, "shells cannot read a variable called %s", brief(name))
		}
	}
}

func (j *answers) addPaths(field, host, container string, places map[string]bool) {
	if !path.IsAbs(host) {
		note(&j.paths.fail, "%s: host_path %s is not absolute", field, brief(host))
	}
	clean := path.Clean(container)
	switch {
	case !path.IsAbs(container):
		note(&j.paths.fail, "%s: container_path %s is not absolute", field, brief(container))
	case clean == "/":
		note(&j.paths.fail, "%s: container_path %s is the container's root", field, brief(container))
	case places[field+clean]:
		note(&j.paths.warn, "%s: container_path %s comes twice in one answer", field, brief(container))
	}
	places[field+clean] = true
}

func (j *answers) addHostPath(p string, device bool, h Host) {
	if !path.IsAbs(p) {
		return // that is another rule's
	}
	note(&j.seen, "%s", brief(p))
	switch kind := h.Paths[p]; {
	case kind == "":
		note(&j.hostPaths.fail, "%s is not there", brief(p))
	case device && kind == "a file":
		note(&j.hostPaths.fail, "%s is a file, and a DeviceSpec needs a device node", brief(p))
	case device && kind == "a folder":
		note(&j.hostPaths.warn, "%s is a folder, and a DeviceSpec needs a device node: not every runtime takes the nodes in it", brief(p))
	}
}

func (j *answers) addCDI(devices []*v1beta1.CDIDevice, h Host) {
	for _, d := range devices {
		note(&j.cdiSeen, "%s", brief(d.GetName()))
		if why := h.CDI[d.GetName()]; why != "" {
			if j.cdiFaults[why] == nil {
				j.cdiReasons = append(j.cdiReasons, why)
			}
			list := j.cdiFaults[why]
			note(&list, "%s", brief(d.GetName()))
			j.cdiFaults[why] = list
		}
	}
}

// content says what answers bring.
func (j *answers) content(resource string) Check {
	const name = "answer/content"
	var parts []string
	for i, noun := range []string{"device node", "mount", "variable", "annotation", "CDI name"} {
		if j.most[i] > 0 {
			parts = append(parts, count(j.most[i], noun))
		}
	}
	switch {
	case j.total == 0:
		return NotDone(name, resource, "there is no answer")
	case j.empty > 0:
		return check(Warn, name, resource, "%d of %d answers are empty: the container gets nothing of its devices", j.empty, j.total)
	}
	faulty := len(j.responses.fail) + len(j.unusable.fail) + len(j.envs.fail) + len(j.envs.warn) // what mends that comes first
	if j.most[2] > 0 && j.most[0]+j.most[1]+j.most[3]+j.most[4]+faulty == 0 {
		return check(Warn, name, resource, "only %s: no container gets a device by that, unless its runtime knows the name, as NVIDIA's does", count(j.most[2], "variable"))
	}
	return check(OK, name, resource, "up to %s in one answer", strings.Join(parts, ", "))
}

func listOf(all []string) string {
	if len(all) == 0 {
		return ""
	}
	return ": " + some(all)
}
