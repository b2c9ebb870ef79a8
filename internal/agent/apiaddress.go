package agent

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// askAgain is for how long the address of the Service kubernetes is taken for what it was.
const askAgain = time.Minute

// apiAddress finds where pods reach the API.
type apiAddress struct {
	kube kubernetes.Interface
	// given is what it is; nil: it is asked for.
	given *netip.AddrPort

	mu    sync.Mutex
	known netip.AddrPort
	asked time.Time
}

// find returns the address; the zero value: there is none.
func (a *apiAddress) find(ctx context.Context) (netip.AddrPort, error) {
	if a.given != nil {
		return *a.given, nil
	}
	a.mu.Lock()
	known, asked := a.known, a.asked
	a.mu.Unlock()
	if known.IsValid() && time.Since(asked) < askAgain {
		return known, nil
	}
	s, err := a.kube.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return netip.AddrPort{}, nil
	case err != nil:
		return netip.AddrPort{}, fmt.Errorf("the Service kubernetes, at which pods reach the API: %w", err)
	}
	found := addressOf(s)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known, a.asked = found, time.Now()
	return found, nil
}

// addressOf is that of the port https, else of the first.
func addressOf(s *v1.Service) netip.AddrPort {
	ip, err := netip.ParseAddr(s.Spec.ClusterIP)
	if err != nil || len(s.Spec.Ports) == 0 {
		return netip.AddrPort{} // headless
	}
	port := s.Spec.Ports[0].Port
	for _, p := range s.Spec.Ports {
		if p.Name == "https" {
			port = p.Port
		}
	}
	return netip.AddrPortFrom(ip, uint16(port)) //nolint:gosec // a port
}
