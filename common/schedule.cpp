#include "common/schedule.h"
