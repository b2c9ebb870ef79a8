package sandbox

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/host/mount"
)

// What containers see of their sandbox, shared memory and the files of the network, they may write to. So it is not in the run directory
// itself, which is often a tmpfs of the whole host: one pod would fill it, and the executor could record nothing any more. It is in a tmpfs of
// the sandbox's own, which has to be there for the shared memory anyway; a second one would cost every start and stop of a pod another
// mount. That a pod fills it is no harm to others, and none to Monopod: the files are written once, before there is a container.

const (
	// shmSize is how much a pod's /dev/shm holds in bytes, as container runtimes have it.
	shmSize = 64 << 20
	// filesSize is for the files: 20 times what they have, for what programs add.
	filesSize = 128 << 10
	// filesInodes are enough for the root, the files, and what the kernel keeps for itself. Containers can make no others: they see
	// the files and not the directory.
	filesInodes = 16
)

// mountTmpfs mounts the sandbox's tmpfs, with the directory of the shared memory in it.
func (m *Manager) mountTmpfs(rec *Record) error {
	at := m.cfg.Folders.tmpfs(rec)
	if err := os.MkdirAll(at, 0o700); err != nil {
		return err
	}
	o := mount.TmpfsOptions{Size: filesSize, Inodes: filesInodes, Mode: 0o700, Label: rec.SELinux.Mount}
	if rec.HostNetwork() {
		o.Size += sizeOf("/etc/hosts") + sizeOf("/etc/resolv.conf") // some hosts block a million names there
	}
	if !rec.HostIPC() {
		o.Size, o.Inodes = o.Size+shmSize, 0
	}
	if err := mount.Tmpfs(at, o); err != nil || rec.HostIPC() {
		return err
	}
	shm := filepath.Join(at, "shm")
	if err := os.Mkdir(shm, 0o700); err != nil {
		return err
	}
	if uid, gid := rec.HostRoot(); uid != 0 || gid != 0 {
		if err := os.Chown(shm, int(uid), int(gid)); err != nil {
			return err
		}
	}
	return os.Chmod(shm, 0o777|os.ModeSticky)
}

func sizeOf(path string) uint64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return uint64(info.Size())
}

// writeFiles writes resolv.conf, hosts and hostname. They are read by containers that do not run yet, and belong to this boot:
// a plain write is enough. Their labels are those of the tmpfs.
func (m *Manager) writeFiles(rec *Record) error {
	resolv, err := resolvConf(rec.Config().GetDnsConfig())
	if err != nil {
		return err
	}
	hostname := rec.Config().GetHostname()
	if hostname == "" { // then it is the node's, in the pod's UTS namespace too
		if hostname, err = os.Hostname(); err != nil {
			return err
		}
	}
	hosts := hostsFile(rec.IPs, hostname)
	if rec.HostNetwork() {
		if raw, err := os.ReadFile("/etc/hosts"); err == nil {
			hosts = string(raw)
		}
	}
	files := m.cfg.Folders.Files(rec)
	for path, content := range map[string]string{files.ResolvConf: resolv, files.Hosts: hosts, files.Hostname: hostname + "\n"} {
		if err := writeFile(path, content, rec); err != nil {
			return err
		}
	}
	return nil
}

// writeFile writes a file that everybody in the containers reads, and their root writes, whatever the umask.
func writeFile(path, content string, rec *Record) error {
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		return err
	}
	if err := os.Chmod(path, 0o644); err != nil {
		return err
	}
	if uid, gid := rec.HostRoot(); uid != 0 || gid != 0 {
		return os.Chown(path, int(uid), int(gid))
	}
	return nil
}

// resolvConf renders a DNS configuration; none at all means the host's.
func resolvConf(dns *cri.DNSConfig) (string, error) {
	if dns == nil {
		raw, err := os.ReadFile("/etc/resolv.conf")
		if os.IsNotExist(err) {
			return "", nil
		}
		return string(raw), err
	}
	var b strings.Builder
	if len(dns.GetSearches()) > 0 {
		fmt.Fprintf(&b, "search %s\n", strings.Join(dns.GetSearches(), " "))
	}
	for _, s := range dns.GetServers() {
		fmt.Fprintf(&b, "nameserver %s\n", s)
	}
	if len(dns.GetOptions()) > 0 {
		fmt.Fprintf(&b, "options %s\n", strings.Join(dns.GetOptions(), " "))
	}
	return b.String(), nil
}

func hostsFile(ips []netip.Addr, hostname string) string {
	var b strings.Builder
	b.WriteString("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n")
	for _, ip := range ips {
		fmt.Fprintf(&b, "%s\t%s\n", ip, hostname)
	}
	return b.String()
}
