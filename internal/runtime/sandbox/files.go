package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Files are the paths of what every container of a sandbox sees of it.
type Files struct{ ResolvConf, Hosts, Hostname, Shm string }

// Files returns the paths of a sandbox's files.
func (m *Manager) Files(rec *Record) Files {
	dir := m.Dir(rec.ID)
	f := Files{ResolvConf: filepath.Join(dir, "resolv.conf"), Hosts: filepath.Join(dir, "hosts"),
		Hostname: filepath.Join(dir, "hostname"), Shm: filepath.Join(dir, "shm")}
	if rec.HostIPC() {
		f.Shm = "/dev/shm"
	}
	return f
}

// writeFiles writes resolv.conf, hosts and hostname. They are read by containers that do not run yet, and belong to this boot:
// a plain write is enough.
func writeFiles(dir string, rec *Record) error {
	resolv, err := resolvConf(rec.Config().GetDnsConfig())
	if err != nil {
		return err
	}
	hostname := rec.Config().GetHostname()
	hosts := hostsFile(rec)
	if rec.HostNetwork() {
		if hostname == "" {
			if hostname, err = os.Hostname(); err != nil {
				return err
			}
		}
		if raw, err := os.ReadFile("/etc/hosts"); err == nil {
			hosts = string(raw)
		}
	}
	for name, content := range map[string]string{"resolv.conf": resolv, "hosts": hosts, "hostname": hostname + "\n"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return err
		}
		if err := rec.labelFile(path); err != nil {
			return err
		}
		if uid, gid := rec.HostRoot(); uid != 0 || gid != 0 {
			if err := os.Chown(path, int(uid), int(gid)); err != nil {
				return err
			}
		}
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

func hostsFile(rec *Record) string {
	var b strings.Builder
	b.WriteString("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n")
	for _, ip := range rec.IPs {
		fmt.Fprintf(&b, "%s\t%s\n", ip, rec.Config().GetHostname())
	}
	return b.String()
}
