package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"monopod.dev/monopod/cmd/monopod/cli"
	"monopod.dev/monopod/internal/config"
	"monopod.dev/monopod/internal/kit/atomicfile"
)

// dialPatience is how long the API server may take to show its certificate.
const dialPatience = 5 * time.Second

func newKubeconfigCommand() *cobra.Command {
	var from, server, name, output string
	cmd := &cobra.Command{
		Use:   "kubeconfig --server ADDRESS",
		Short: "Print a kubeconfig for another machine",
		Long: `Prints the node's administrator kubeconfig with another address of the API server, for a client on another
machine, such as your laptop. ADDRESS is an IP address or a host name; add a port if it is not the one that the
node serves on: 192.0.2.7, node.example.com, [2001:db8::7]:6443.

The API server must listen on that address (--api-bind-address), and its certificate must contain it
(--tls-san; the node's own name and addresses are always in it). The command connects to the API server, and
fails if the certificate is not valid for ADDRESS. If it cannot connect, it warns and prints the kubeconfig
anyway, because there may be a firewall or a NAT in between.

The output has the rights of an administrator: protect it like a private key. For fewer rights, sign a
certificate or create a token of a service account (docs/ACCESS.md).`,
		Example: `  monopod kubeconfig --server 192.0.2.7 > laptop.kubeconfig
  monopod kubeconfig --server node.example.com --name lab --output lab.kubeconfig
  ssh root@node.example.com monopod kubeconfig --server node.example.com > ~/.kube/node`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			k := kubeconfigCopy{from: from, server: server, name: name, shown: shownCertificate}
			raw, warning, err := k.make()
			if err != nil {
				return err
			}
			if warning != "" {
				fmt.Fprintln(cmd.ErrOrStderr(), "warning: "+warning)
			}
			if output == "" {
				_, err = cmd.OutOrStdout().Write(raw)
				return err
			}
			return atomicfile.Write(output, raw, 0o600)
		},
	}
	cmd.Flags().StringVar(&server, "server", "", "`ADDRESS` at which the other machine reaches the API server: HOST or HOST:PORT")
	cmd.Flags().StringVar(&from, "kubeconfig", config.DefaultKubeconfig, "the node's administrator kubeconfig `FILE`")
	cmd.Flags().StringVar(&name, "name", "monopod", "`NAME` of the cluster, the user and the context")
	cmd.Flags().StringVar(&output, "output", "", "write to `FILE`, with mode 0600, instead of standard output")
	_ = cmd.MarkFlagRequired("server") // fails only for a flag that does not exist
	return cmd
}

// kubeconfigCopy makes a kubeconfig for another machine from the node's own.
type kubeconfigCopy struct {
	from, server, name string
	// shown tells which certificate the server at HOST:PORT shows that these authorities vouch for.
	shown func(address string, roots *x509.CertPool) (*x509.Certificate, error)
}

// make returns the kubeconfig, and what is to be known of it.
func (k *kubeconfigCopy) make() (raw []byte, warning string, err error) {
	own, err := clientcmd.LoadFromFile(k.from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", fmt.Errorf("there is no kubeconfig %s: start a node, or name its file with --kubeconfig", k.from)
	}
	if err != nil {
		return nil, "", fmt.Errorf("read %s: %w", k.from, err)
	}
	current := own.Contexts[own.CurrentContext]
	if current == nil || own.Clusters[current.Cluster] == nil || own.AuthInfos[current.AuthInfo] == nil {
		return nil, "", fmt.Errorf("%s has no current context with a cluster and a user: name the kubeconfig that the node has written", k.from)
	}
	cluster, user := own.Clusters[current.Cluster].DeepCopy(), own.AuthInfos[current.AuthInfo].DeepCopy()
	at, err := url.Parse(cluster.Server)
	if err != nil || at.Port() == "" {
		return nil, "", fmt.Errorf("%s names the server %q, which is no https://HOST:PORT", k.from, cluster.Server)
	}
	host, port, err := splitServer(k.server, at.Port())
	if err != nil {
		return nil, "", &cli.UsageError{Err: err}
	}
	warning, err = k.check(at.Host, host, port, cluster.CertificateAuthorityData)
	if err != nil {
		return nil, "", err
	}
	cluster.Server = "https://" + net.JoinHostPort(host, port)
	made := clientcmdapi.NewConfig()
	made.Clusters[k.name] = cluster
	made.AuthInfos[k.name] = user
	made.Contexts[k.name] = &clientcmdapi.Context{Cluster: k.name, AuthInfo: k.name, Namespace: current.Namespace}
	made.CurrentContext = k.name
	raw, err = clientcmd.Write(*made)
	return raw, warning, err
}

// check fails where the API server, which the node itself reaches at own, shows a certificate that is not good for host, and warns where nothing answers.
func (k *kubeconfigCopy) check(own, host, port string, ca []byte) (warning string, err error) {
	roots := x509.NewCertPool()
	if block, _ := pem.Decode(ca); block == nil || !roots.AppendCertsFromPEM(ca) {
		return "", fmt.Errorf("%s has no certificate authority of its own: name the kubeconfig that the node has written", k.from)
	}
	cert, err := k.shown(own, roots)
	if err != nil {
		return fmt.Sprintf("the API server does not answer at %s, so its certificate was not checked: %v", own, err), nil
	}
	if cert.VerifyHostname(host) != nil {
		names := cert.DNSNames
		for _, ip := range cert.IPAddresses {
			names = append(names, ip.String())
		}
		return "", fmt.Errorf("the API server's certificate does not name %s (it names %s): restart the node with --tls-san %s", host, strings.Join(names, ", "), host)
	}
	address := net.JoinHostPort(host, port)
	if _, err := k.shown(address, roots); err != nil {
		return fmt.Sprintf("nothing answers at %s from this machine (%v): to serve the API there, start the node with --api-bind-address 0.0.0.0, or with the address of one interface",
			address, err), nil
	}
	return "", nil
}

// splitServer takes HOST, HOST:PORT, an IPv6 address with or without brackets, and https://HOST:PORT.
func splitServer(server, defaultPort string) (host, port string, err error) {
	rest := strings.TrimSuffix(strings.TrimPrefix(server, "https://"), "/")
	host, port = strings.Trim(rest, "[]"), defaultPort
	if _, errIP := netip.ParseAddr(host); errIP != nil {
		if h, p, errSplit := net.SplitHostPort(rest); errSplit == nil {
			host, port = h, p
		}
	}
	n, errPort := strconv.ParseUint(port, 10, 16)
	if _, errIP := netip.ParseAddr(host); host == "" || errIP != nil && strings.ContainsAny(host, ":/[] ?#@") || errPort != nil || n == 0 {
		return "", "", fmt.Errorf("--server %q is no address: use HOST or HOST:PORT, such as 192.0.2.7 or node.example.com:6443", server)
	}
	return host, port, nil
}

func shownCertificate(address string, roots *x509.CertPool) (*x509.Certificate, error) {
	dialer := &net.Dialer{Timeout: dialPatience}
	conn, err := tls.DialWithDialer(dialer, "tcp", address, &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12})
	if err != nil {
		return nil, err
	}
	defer conn.Close() // nothing was written
	certs := conn.ConnectionState().PeerCertificates
	if len(certs) == 0 {
		return nil, os.ErrInvalid
	}
	return certs[0], nil
}
