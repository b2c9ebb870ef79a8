// Package printers makes the tables that `kubectl get` shows: the server side of content negotiation for
// "as=Table;g=meta.k8s.io;v=v1".
//
// Each resource has one function that returns its rest.TableConvertor (Pods, Nodes, ...). The columns, their order and
// their words are those of a Kubernetes API server, because people and scripts read them. A column of priority 1 is shown
// by `kubectl get -o wide` only; the server sends all of them and the client chooses.
//
// It reads objects and changes none of them.
package printers
