/* msgq for C and C++: publish and subscribe between the processes of one machine. See docs/guides/c.md. */
#ifndef MSGQ_H
#define MSGQ_H

#include "msgq/channel.h"
#include "msgq/poll.h"
#include "msgq/queue.h"
#include "msgq/records.h"
#include "msgq/topic.h"

#endif
