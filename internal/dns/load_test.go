package dns_test

import (
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	corev1 "k8s.io/api/core/v1"
)

// How long answers take at 1,000 questions a second, of which most are those of a search through ndots:5. It fails only for wrong answers: how
// fast a machine is that does other work is nobody's fault.
func TestLoad(t *testing.T) {
	const services, clients, each, rate = 200, 20, 150, 1000
	r := start(t)
	want := map[string]string{}
	for i := range services {
		s := r.service(fmt.Sprintf("s%d", i), func(*corev1.Service) {})
		want[s.Name] = s.Spec.ClusterIP
	}
	lastName := fmt.Sprintf("s%d", services-1)
	r.await("the last service", want[lastName], func() string { return r.hosts(lastName + ".default.svc.cluster.local.") })

	var mu sync.Mutex
	var took []time.Duration
	var all sync.WaitGroup
	begin := time.Now()
	for c := range clients {
		all.Go(func() {
			conn, err := net.Dial("udp", r.server.Addr().String())
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			buffer := make([]byte, 1500)
			for i := range each {
				n := i*clients + c
				time.Sleep(time.Until(begin.Add(time.Duration(n) * time.Second / rate))) //nolint:forbidigo // it is the rate
				name := fmt.Sprintf("s%d", n%services)
				exists := n%4 == 0
				asked := name + ".default.svc.cluster.local."
				if !exists {
					asked = fmt.Sprintf("www%d.example.com.default.svc.cluster.local.", n)
				}
				raw, err := (&dnsmessage.Message{Header: dnsmessage.Header{ID: uint16(n), RecursionDesired: true},
					Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(asked), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}).Pack()
				if err != nil {
					t.Error(err)
					return
				}
				sent := time.Now()
				if _, err := conn.Write(raw); err != nil {
					t.Error(err)
					return
				}
				if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
					t.Error(err)
					return
				}
				got, err := conn.Read(buffer)
				took1 := time.Since(sent)
				var reply dnsmessage.Message
				if err != nil || reply.Unpack(buffer[:got]) != nil || reply.ID != uint16(n) || exists != (reply.RCode == dnsmessage.RCodeSuccess) {
					t.Errorf("%s: %s, %v", asked, reply.GoString(), err)
					return
				}
				if exists {
					a := reply.Answers[0].Body.(*dnsmessage.AResource).A
					if ip := net.IP(a[:]).String(); ip != want[name] {
						t.Errorf("%s has %s, want %s", name, ip, want[name])
					}
				}
				mu.Lock()
				took = append(took, took1)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	slices.Sort(took)
	if len(took) == clients*each {
		t.Logf("%d questions in %v: median %v, p99 %v, most %v", len(took), time.Since(begin).Round(time.Millisecond), took[len(took)/2], took[len(took)*99/100], took[len(took)-1])
	}
}
