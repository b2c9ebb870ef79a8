package hostfacts

import (
	"os"
	"strconv"
	"strings"
)

// defaultProfileName is the name of the AppArmor profile of containers that name none.
const defaultProfileName = "monopod-default"

// defaultRules are those of the default profile. A container does what its capabilities and its seccomp profile let it do, but for what
// would change the host through the kernel's own file systems, and for mounts; signals and traces stay among the containers. It
// allows nothing that containerd's default profile denies: a test proves it, for every path and every request there can be.
//
// A pattern in AppArmor cannot say "all but": what may be written to is told by all beginnings that its name does not have.
const defaultRules = `
  capability,
  file,
  network,
  umount,

  # Stop signals and kills come from whoever is not confined, from Monopod, and from the OCI runtimes of other handlers.
  signal (receive) peer=unconfined,
  signal (receive) peer=runc,
  signal (receive) peer=crun,
  signal (send, receive) peer=monopod-default,
  ptrace (trace, tracedby, read, readby) peer=monopod-default,

  # Sockets without a path are not the business of a file system's rules: those of others on the host cannot be reached.
  unix (create, getattr, getopt, setopt, shutdown),
  unix (receive) peer=(label=unconfined),
  unix peer=(label=monopod-default),

  deny mount,
  deny remount,
  deny pivot_root,

  # In /proc what belongs to processes can be written to, and the limits of System V's shared memory, which are a namespace's own.
  deny /proc/* w,
  deny /proc/{[^1-9s/]*,s,s[^y/]*,sy,sy[^s/]*,sys[^/]*}/** w,
  deny /proc/sys/[^k]** w,
  deny /proc/sys/kernel/{[^s]**,s,s[^h]**,sh,sh[^m]**} w,
  deny /proc/{kcore,sysrq-trigger} rwklx,

  # In /sys it is the cgroups.
  deny /sys/{[^f]**,f,f[^s]**,fs,fs[^/]**} wklx,
  deny /sys/fs/{[^c]**,c,c[^g]**,cg,cg[^r]**} wklx,
  deny /sys/{firmware,devices/virtual/powercap,kernel/security,kernel/debug,kernel/tracing}/** rwklx,
`

// policyABI pins what the rules are about: a newer parser would otherwise take a class of requests that they do not name, and that it
// knows of, for one that is to be denied. Hosts before AppArmor 3 do not have it.
const policyABI = "/etc/apparmor.d/abi/3.0"

// defaultProfile is the text of the profile. self is the label of the process that will signal containers, as /proc/self/attr/current
// tells it; empty: it is not confined.
func defaultProfile(self string, hasABI bool) string {
	var b strings.Builder
	if hasABI {
		b.WriteString("abi <abi/3.0>,\n\n")
	}
	b.WriteString("profile " + defaultProfileName + " flags=(attach_disconnected, mediate_deleted) {")
	b.WriteString(defaultRules)
	if name := profileOf(self); name != "" {
		b.WriteString("\n  signal (receive) peer=" + strconv.Quote(name) + ",\n")
	}
	b.WriteString("}\n")
	return b.String()
}

// profileOf is the name in a label, "name (mode)"; empty where nothing is confined, or where the name could not be written down.
func profileOf(label string) string {
	label = strings.TrimRight(label, "\x00\n")
	if i := strings.LastIndex(label, " ("); i >= 0 {
		label = label[:i]
	}
	if label == "unconfined" || strings.ContainsAny(label, "\"\\\n{}[]*?^") || strings.Contains(label, "//&") {
		return ""
	}
	return label
}

// profileForHost is the default profile as this host needs it.
func profileForHost() string {
	self, err := os.ReadFile("/proc/self/attr/apparmor/current")
	if err != nil { // before Linux 5.1 all security modules share a file
		self, _ = os.ReadFile("/proc/self/attr/current") // one that cannot be read says nothing of a profile
	}
	_, err = os.Stat(policyABI)
	return defaultProfile(string(self), err == nil)
}
