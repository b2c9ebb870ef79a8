package apiserver

import (
	"bytes"
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"monopod.dev/monopod/internal/apiserver/pki"
	"monopod.dev/monopod/internal/kit/atomicfile"
)

// renewInterval is how often certificates are looked at while the server runs.
const renewInterval = 24 * time.Hour

// Access is who gets in, with what: the certificates of the server, of its clients and of the node's agent, their renewal, the configurations of clients, and the
// administrator's kubeconfig. Its methods are safe for concurrent use when Run has begun.
type Access struct {
	cfg Config
	// port is that of the API, first the addresses of the service kubernetes, by which pods reach it; extra are those that Extend has added.
	port         int
	first, extra []netip.Addr
	pki          *pki.PKI
	// certificate is the one that is served, admin the administrator's; controllers and agent are clients of this process.
	certificate        servingCert
	admin              atomic.Pointer[pki.Pair]
	controllers, agent *ownClient
	// nodeAddresses are those of the node since they have changed; nil: they are the configured ones.
	nodeAddresses atomic.Pointer[[]string]
	renewMu       sync.Mutex // one renewal at a time
}

func newAccess(cfg Config, port int, first []netip.Addr) *Access {
	return &Access{cfg: cfg, port: port, first: first, controllers: newOwnClient(), agent: newOwnClient()}
}

// issue makes the certificates where they are missing. They are used when use is called.
func (a *Access) issue() (err error) {
	var renewed []string
	if a.pki, renewed, err = pki.Ensure(a.pkiConfig()); len(renewed) > 0 {
		a.cfg.Log.Info("certificates issued", "files", renewed)
	}
	return err
}

// extend has the serving certificate be for more addresses. It is called before Run.
func (a *Access) extend(more []netip.Addr) error {
	a.extra = append(a.extra, more...)
	if err := a.issue(); err != nil {
		return err
	}
	return a.use(a.pki)
}

// keys is the directory of certificates and keys.
func (a *Access) keys() string { return filepath.Join(a.cfg.DataDir, "pki") }

func (a *Access) pkiConfig() pki.Config {
	addresses := a.cfg.NodeAddresses
	if now := a.nodeAddresses.Load(); now != nil {
		addresses = *now
	}
	serving := slices.Concat([]string{a.cfg.BindAddress}, addresses, a.cfg.CertSANs)
	for _, at := range slices.Concat(a.first, a.extra, []netip.Addr{a.cfg.AdvertiseAddress}) {
		if at.IsValid() {
			serving = append(serving, at.String())
		}
	}
	return pki.Config{Dir: a.keys(), NodeName: a.cfg.NodeName, ServerAddresses: serving, AgentAddresses: addresses}
}

// url is the API's address as clients on this host reach it.
func (a *Access) url() string {
	host := a.cfg.BindAddress
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "https://" + net.JoinHostPort(host, strconv.Itoa(a.port))
}

// AdminConfig is a client configuration that may do everything, as long as the administrator's present certificate is valid: it is asked for anew.
func (a *Access) AdminConfig() *rest.Config { return a.configOf(*a.admin.Load()) }

// ControllersConfig is the client configuration of the controllers. Its clients use a renewed certificate by themselves.
func (a *Access) ControllersConfig() *rest.Config { return a.ownConfig(a.controllers) }

// Sign issues a certificate for a key of somebody else's, by a template, valid for the given time at most; it is PEM.
func (a *Access) Sign(template *x509.Certificate, key crypto.PublicKey, life time.Duration) ([]byte, error) {
	return a.pki.Sign(template, key, life)
}

// NodeConfig is the client configuration of the agent of the named node. The clients of this server's own node use a renewed certificate by themselves.
func (a *Access) NodeConfig(nodeName string) *rest.Config {
	if nodeName == a.cfg.NodeName {
		return a.ownConfig(a.agent)
	}
	issued, err := a.pki.NodeClient(nodeName)
	if err != nil {
		// Without a certificate the client gets 401 for every request: say why here.
		a.cfg.Log.Error("no credentials for an agent", "node", nodeName, "error", err)
	}
	return a.configOf(issued)
}

// AgentServingFiles are the files with which the agent of this node serves HTTPS, and the authority of its clients.
func (a *Access) AgentServingFiles() (cert, key, clientCA string) {
	return a.pki.Agent.CertFile, a.pki.Agent.KeyFile, a.pki.CAFile
}

// configOf has a certificate in it.
func (a *Access) configOf(pair pki.Pair) *rest.Config {
	return &rest.Config{Host: a.url(), TLSClientConfig: rest.TLSClientConfig{CAData: a.pki.CA, CertData: pair.Cert, KeyData: pair.Key}}
}

func (a *Access) ownConfig(client *ownClient) *rest.Config {
	config, err := client.config(a.url(), a.pki.CA)
	if err != nil {
		a.cfg.Log.Error("no credentials for a client of this process: it gets 401 for every request", "error", err)
		return a.configOf(pki.Pair{})
	}
	return config
}

// use has the server and the clients of this process use certificates from now on.
func (a *Access) use(p *pki.PKI) error {
	a.admin.Store(&p.Admin)
	return errors.Join(a.certificate.set(p.Server), a.controllers.set(p.Controllers), a.agent.set(p.Node))
}

// writeKubeconfig writes the administrator's kubeconfig, which holds all that a client needs.
func (a *Access) writeKubeconfig(admin pki.Pair) error {
	path := a.cfg.Kubeconfig
	if path == "" {
		return nil
	}
	const name = "monopod"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: a.url(), CertificateAuthorityData: a.pki.CA}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: admin.Cert, ClientKeyData: admin.Key}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	raw, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	a.noteReplaced(path)
	if err := atomicfile.Write(path, raw, 0o600); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}

// OwnsKubeconfig says whether a file is the administrator's kubeconfig that the API server with this data directory has written: it has that server's
// administrator and nobody else. A file that is not there, or is no kubeconfig, is not.
func OwnsKubeconfig(dataDir, path string) (bool, error) {
	if path == "" {
		return false, nil
	}
	own, err := os.ReadFile(filepath.Join(dataDir, "pki", "admin.crt"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	config, err := clientcmd.Load(raw)
	if err != nil || len(config.AuthInfos) != 1 || len(config.Clusters) != 1 {
		return false, nil // it is somebody else's
	}
	for _, user := range config.AuthInfos {
		return bytes.Equal(bytes.TrimSpace(user.ClientCertificateData), bytes.TrimSpace(own)), nil
	}
	return false, nil
}

// noteReplaced warns of a kubeconfig of another cluster in whose place this server's comes.
func (a *Access) noteReplaced(path string) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return
	}
	config, err := clientcmd.Load(raw)
	if err != nil {
		return
	}
	for _, c := range config.Clusters {
		if !bytes.Equal(bytes.TrimSpace(c.CertificateAuthorityData), bytes.TrimSpace(a.pki.CA)) {
			a.cfg.Log.Warn("the kubeconfig of another cluster is replaced; a node of its own is to have one of its own (apiServer.kubeconfig)", "file", path, "cluster", c.Server)
		}
	}
}

// renewCertificates replaces certificates that come near their end while the server runs, and takes up those that somebody else has replaced.
func (a *Access) renewCertificates(ctx context.Context) error {
	ticker := time.NewTicker(renewInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		renewed, err := a.renew()
		if err != nil {
			a.cfg.Log.Error("certificates could not be renewed; trying again tomorrow", "error", err)
		}
		if len(renewed) > 0 {
			a.cfg.Log.Info("certificates renewed; copies of the administrator's kubeconfig are to be replaced", "files", renewed)
		}
	}
}

// SetNodeAddresses has the certificates of the server and of the node's agent be for these names and addresses of the node from now on.
func (a *Access) SetNodeAddresses(addresses []string) error {
	a.nodeAddresses.Store(&addresses)
	renewed, err := a.renew()
	if len(renewed) > 0 {
		a.cfg.Log.Info("certificates made for the node's addresses", "addresses", addresses, "files", renewed)
	}
	return err
}

func (a *Access) renew() (renewed []string, err error) {
	a.renewMu.Lock()
	defer a.renewMu.Unlock()
	p, renewed, err := pki.Ensure(a.pkiConfig())
	if err != nil {
		return nil, err
	}
	err = a.use(p)
	if len(renewed) > 0 {
		err = errors.Join(err, a.writeKubeconfig(p.Admin))
	}
	return renewed, err
}
